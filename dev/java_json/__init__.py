"""What MongoDB's Java library, and Debezium with it, makes of documents: recorded, for tests of our own texts."""
