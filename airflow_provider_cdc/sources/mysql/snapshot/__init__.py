"""Reading tables: consistent snapshots, and chunks of incremental snapshots with their watermarks.

May import ``log`` (its end, its filters), ``schema``, ``columns``, ``kernels`` and the heads below ``checks``.
"""
