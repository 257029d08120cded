"""What clients say in Db2's words, and what the engine is told instead."""
