"""Steers a connector between its runs: see its status, pause it, move its offset, repair a gap in the log, delete it.

May import ``core.incremental``, ``core.snapshot`` and below.
"""
