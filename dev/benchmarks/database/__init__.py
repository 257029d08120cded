"""Benchmarks of the apply of changes to the tables of a database."""
