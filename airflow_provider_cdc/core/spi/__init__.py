"""What others implement: a source, a state store, a change log, a channel, a form of events.

Protocols and the values that they speak of. May import ``core.config`` and ``core.model``.
"""
