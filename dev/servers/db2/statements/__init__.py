"""What clients say in Db2's words, and the statements that the engine gets instead."""
