"""Rows by key and rows without a key: the last event per key, multisets, and their differences."""
