"""Binlog events: their types, parsing of those that are not rows, and decompression.

The lowest part of ``log``. May import ``columns`` and ``kernels``.
"""
