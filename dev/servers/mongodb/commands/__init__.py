"""The commands on documents, collections and indexes."""
