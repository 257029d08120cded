"""What a member keeps: collections with their versions, the oplog that makes them, and transactions."""
