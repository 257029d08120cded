"""Rows of the log: which table an event belongs to, how its rows lie in the bytes, and decoding them.

May import ``log.events``, ``schema``, ``columns`` and ``kernels``; nothing of the rest of ``log``, but ids of transactions.
"""
