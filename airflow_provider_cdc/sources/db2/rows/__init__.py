"""Fetched rows as Arrow arrays: the expression that selects a column, and the conversion of its values. The same code for snapshots, chunks and change tables.

It imports ``schema``, ``config``, ``connect`` and ``errors`` only.
"""
