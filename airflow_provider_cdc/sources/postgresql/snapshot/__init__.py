"""Snapshots and chunks of tables, read by ``COPY`` in binary form."""
