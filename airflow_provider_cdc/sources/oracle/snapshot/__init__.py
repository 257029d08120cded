"""Rows that are read by queries: snapshots as of one SCN, chunks of incremental snapshots, single rows as they were.

It imports ``redo``, ``schema``, ``kernels`` and the heads of the source; not ``transactions``, and not ``mining``.
"""
