"""Reading the redo log with LogMiner: the window of SCNs, the logs that hold it, the query. :mod:`.stream` puts it all together.

It imports every other sub-package; only :mod:`..source` imports it.
"""
