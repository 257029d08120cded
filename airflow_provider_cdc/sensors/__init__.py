"""Tasks that wait for changes, for a snapshot, or for a target."""
