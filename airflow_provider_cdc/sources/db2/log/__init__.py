"""Reading the changes that the capture agent has published: windows of commits, one cursor per change table, all of them merged in order. Begin with
:mod:`.stream`.

It imports every other sub-package but :mod:`..snapshot`; only :mod:`..source` imports it.
"""
