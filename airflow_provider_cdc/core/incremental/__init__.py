"""Incremental snapshots: tables are read in chunks beside the stream, and events win over rows that were read.

May import ``core.writing`` and below, not ``core.snapshot``.
"""
