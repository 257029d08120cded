"""Apply of pending batches to tables: one table at a time, with ownership, progress and reports."""
