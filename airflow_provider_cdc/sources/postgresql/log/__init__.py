"""Reads PostgreSQL's log: the stream of a replication slot."""
