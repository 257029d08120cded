"""Documents as rows of typed columns (docs/sources/mongodb.md, "Documents as columns")."""
