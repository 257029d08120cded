"""Verification of target tables against the source: the reference read, the plan, the report, the repair."""
