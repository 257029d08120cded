"""The MongoDB source."""
