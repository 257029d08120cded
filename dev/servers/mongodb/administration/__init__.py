"""The commands about the server, its replica set, its sessions, and who may do what."""
