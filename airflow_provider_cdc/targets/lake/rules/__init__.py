"""Rules of target tables: columns, filters and routes that users define, checked against the schema of a table."""
