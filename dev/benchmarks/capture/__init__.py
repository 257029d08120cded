"""How fast changes and snapshots are captured."""
