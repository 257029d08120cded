"""Change events as operations on a table: read from files, in windows, with the last event of each key."""
