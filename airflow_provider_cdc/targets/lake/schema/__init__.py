"""Schema evolution of lakehouse tables: columns, types, and where each column comes from."""
