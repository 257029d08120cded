"""Reading the redo log with LogMiner: windows of SCNs, the log files of each window, the query. Begin with :mod:`.logminer_stream`.

It imports every other sub-package; only :mod:`..source` imports it.
"""
