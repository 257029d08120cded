"""The kernels: decode bytes of the replication protocol. numba compiles them; they use no Python objects and release the GIL.

Each function also runs as plain Python (``NUMBA_DISABLE_JIT=1``, or its ``.py_func``), which is the reference in tests. No kernel
reads past the end that it was given.
"""
