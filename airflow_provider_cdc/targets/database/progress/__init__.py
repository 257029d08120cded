"""Tables of our own in the target database: markers of applied batches, claims of table names."""
