"""How fast a change log is applied to a lake's tables."""
