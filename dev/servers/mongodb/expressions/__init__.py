"""Aggregation expressions and their operators."""
