"""What stands in for Db2's log."""
