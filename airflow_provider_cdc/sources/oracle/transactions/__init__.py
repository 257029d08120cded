"""Conversion of rows of LogMiner to log items.

Changes are buffered until their transaction commits, and delivered by whole transactions in commit order.

Begin with :mod:`.row_processor`. Nothing here uses a database: questions that the log leaves open go to ``schema.lookups``. It imports
``redo``, ``schema``, ``kernels``, ``config``, ``position`` and ``metrics``; not ``snapshot``, and not ``mining``.
"""
