"""The protocol of logical replication: the connection of a slot's stream, and its messages."""
