"""Columns, keys and value types of target tables, by the schema of a topic and the configuration."""
