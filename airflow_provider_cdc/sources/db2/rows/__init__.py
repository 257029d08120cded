"""Fetched rows as Arrow arrays: what is selected of a column, and what is made of its values. The same code for snapshots, chunks and change tables.

It imports ``schema``, ``config``, ``connect`` and ``errors`` only.
"""
