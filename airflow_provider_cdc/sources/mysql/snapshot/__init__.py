"""Reading tables: consistent snapshots, and chunks of incremental snapshots with their watermarks.

May import ``log.log_end`` and ``log.binlog_filters``, ``schema``, ``columns``, ``kernels`` and ``config``, ``connect``, ``position``,
``metrics``.
"""
