"""How fast changes are applied to the tables of a database."""
