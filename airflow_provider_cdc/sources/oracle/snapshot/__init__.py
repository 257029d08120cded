"""Reading rows by queries: snapshots as of one SCN, chunks of incremental snapshots, single rows by flashback query.

It imports ``redo``, ``schema``, ``kernels``, ``config``, ``connect``, ``errors`` and ``position``; not ``transactions``, and not ``mining``.
"""
