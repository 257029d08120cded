"""Apply by many workers, through staging tables."""
