"""Writes of one table: the choice of a strategy, and one module for each."""
