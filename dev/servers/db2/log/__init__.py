"""A stand-in for Db2's log."""
