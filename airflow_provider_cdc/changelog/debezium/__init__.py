"""Debezium's JSON form of the change log."""
