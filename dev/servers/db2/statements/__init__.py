"""Statements of clients in Db2's SQL, and the statements that the engine gets instead."""
