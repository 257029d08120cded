"""Reads signals: their requests, which channel may send them, which tables they name, the rows of the signal table.

``core.capture`` carries them out. May import ``core.spi`` and below.
"""
