"""Fields and outcomes that tasks of a connector have in common."""
