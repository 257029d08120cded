"""The grammar of DDL, clause by clause: from tokens to the values of ``ddl``. Only :mod:`..statement_reader`, and who cuts SQL into tokens, imports it."""
