"""Recorded JSON texts of documents by MongoDB's Java library, and Debezium with it, for tests of our own texts."""
