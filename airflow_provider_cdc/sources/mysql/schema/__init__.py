"""What tables look like: types of columns, the catalog, and what DDL in the log does to structures.

May import ``config``, ``connect`` and the other heads; nothing of ``snapshot`` or ``log``, which build on this.
"""
