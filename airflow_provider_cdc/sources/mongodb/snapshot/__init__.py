"""Reads collections: whole, and in chunks beside the stream."""
