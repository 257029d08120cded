"""Apply of pending batches to the tables of a database, in transactions with their marker."""
