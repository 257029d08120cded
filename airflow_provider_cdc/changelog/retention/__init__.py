"""Deletion of batches that no target needs."""
