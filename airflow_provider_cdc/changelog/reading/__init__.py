"""Reading of pending batches: schema changes between them, the last event of each key."""
