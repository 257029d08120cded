"""Interfaces that others implement: a source, a state store, a change log, a channel, a form of events.

Protocols, the values in them, and what a run is given. May import ``core.config`` and ``core.model``.
"""
