"""A member among the others of its replica set."""
