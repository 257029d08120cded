"""Table schemas: from the catalog, and from structures that people write.

It imports ``asn``, ``config``, ``connect`` and ``errors`` only.
"""
