"""Change streams: the events out of the oplog, and the resume tokens."""
