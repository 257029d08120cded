"""All changes of one row, found by an index of keys."""
