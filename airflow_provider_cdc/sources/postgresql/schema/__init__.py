"""The structure of tables: from the catalog, and the types that their columns have in the change log."""
