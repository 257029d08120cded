"""Table schemas: types, the catalog, DDL in the log, and the schema in force at each SCN.

It imports the heads of the source, and no other sub-package.
"""
