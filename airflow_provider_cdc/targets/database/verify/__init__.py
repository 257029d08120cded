"""Comparison of a database's tables with the rows of the source."""
