"""Reading the redo log with LogMiner: which window of SCNs, out of which logs, by which query; :mod:`.stream` puts it all together.

It imports every other sub-package; only :mod:`..source` imports it.
"""
