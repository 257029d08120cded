"""Reading rows by queries: snapshots, and chunks of incremental snapshots.

It imports ``rows``, ``schema``, ``asn``, ``config``, ``connect``, ``errors`` and ``position``; not ``log``.
"""
