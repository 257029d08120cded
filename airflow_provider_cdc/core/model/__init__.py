"""Plain values of capture: schemas, positions and offsets, events, manifests, signals, notifications, metrics.

Nothing here reads a configuration, a file or a database. May import ``core.errors`` only.
"""
