"""Benchmarks of the apply of a change log to a lake's tables."""
