"""Table schemas: types of columns, the catalog, and the effect of DDL in the log.

May import ``config``, ``connect`` and the other heads; nothing of ``snapshot`` or ``log``, which build on this.
"""
