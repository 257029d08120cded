"""Batches that a table has not applied yet."""
