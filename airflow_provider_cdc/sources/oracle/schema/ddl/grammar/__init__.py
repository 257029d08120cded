"""The grammar of DDL, clause by clause: from tokens to the values of ``ddl``. Only :mod:`..reader`, and who cuts SQL into tokens, imports it."""
