"""The storage of a member: collections with their versions, the oplog that makes them, and transactions."""
