"""The grammar of DDL, one module per kind of statement or clause, over tokens.

May import the values that reading gives (``statements``, ``actions``, ``columns``, ``values``), not the reader.
"""
