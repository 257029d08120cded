"""Placement: the target table that the rows of a topic go to, and the rule for it."""
