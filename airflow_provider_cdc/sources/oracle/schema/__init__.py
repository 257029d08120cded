"""Structures of tables: types, the catalog, the DDL in the log, and which structure is in force at which SCN.

It imports the heads of the source, and no other sub-package.
"""
