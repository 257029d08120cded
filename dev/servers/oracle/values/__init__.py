"""Values: column types, dates and intervals, row ids."""
