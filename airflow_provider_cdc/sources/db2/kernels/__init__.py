"""The array kernels of the Db2 source: the order of changes over all change tables, and which rows are one update. numba compiles them.

Each function also runs as plain Python (``NUMBA_DISABLE_JIT=1``, or its ``.py_func``), which is the reference in tests. An LSN is some big-endian
64-bit words, padded with zero bytes on the right, so that words compare as bytes do. They import nothing else of the source.
"""
