"""The array kernels of the Oracle source: from bytes of SQL_REDO to columns, compiled by numba, free of the GIL.

Each function also runs as plain Python (``NUMBA_DISABLE_JIT=1``), which is the reference in tests. No kernel reads outside of
the text that it was given, and none guesses: a text that has not exactly the usual shape is left to ``redo.statement_parser``.

They import nothing else of the source.

Compiling takes some seconds once per installation; numba keeps the result on disk (``NUMBA_CACHE_DIR`` says where).
"""
