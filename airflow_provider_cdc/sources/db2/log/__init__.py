"""Reading the changes that the capture agent has published; begin with :mod:`.stream`.

The log is read in windows of commits, with one cursor per change table, all of them merged in order.

It imports every other sub-package but :mod:`..snapshot`; only :mod:`..source` imports it.
"""
