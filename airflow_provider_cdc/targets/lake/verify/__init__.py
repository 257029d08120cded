"""Comparison of tables with the rows of the source."""
