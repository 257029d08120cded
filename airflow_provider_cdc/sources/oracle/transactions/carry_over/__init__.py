"""Open transactions, carried over from one stream to the next: their rows in files, all else in a state.

Begin with :mod:`.carried_transactions`.
"""
