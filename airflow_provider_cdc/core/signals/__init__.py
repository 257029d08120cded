"""Signals as they come: what they ask for, who may ask for it, which tables they name, the rows of the signal table.

What they do is in ``core.capture``. May import ``core.spi`` and below.
"""
