"""The array kernels of the MongoDB source: from bytes of BSON to columns and to text. numba compiles them; they use no Python objects and release the GIL.

Each function also runs as plain Python (``NUMBA_DISABLE_JIT=1``, or its ``.py_func``), which is the reference in tests. No kernel reads past the
end that it was given: a value that goes past it, or is no BSON, is reported as a problem with its place. They import nothing else of the source.

Compiling takes some seconds once per installation; numba keeps the result on disk (``NUMBA_CACHE_DIR`` says where).
"""
