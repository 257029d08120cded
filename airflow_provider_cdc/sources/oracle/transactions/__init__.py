"""From rows of LogMiner to blocks of the log: transactions wait here for their commit, and come out whole, in the order of their commits.

Nothing here knows a database: what the log does not tell is asked of ``schema.lookups``. It imports ``redo``, ``schema``, ``kernels`` and the
heads of the source; not ``snapshot``, and not ``mining``.
"""
