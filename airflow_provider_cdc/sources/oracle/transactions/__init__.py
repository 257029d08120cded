"""From rows of LogMiner to blocks of the log: changes wait here until their transaction is committed, and come out by whole transactions, in the
order of commits.

Nothing here needs a database: questions that the log leaves open go to ``schema.lookups``. It imports ``redo``, ``schema``, ``kernels`` and the
heads of the source; not ``snapshot``, and not ``mining``.
"""
