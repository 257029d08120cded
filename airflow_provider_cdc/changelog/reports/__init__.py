"""Reports of jobs on target tables, beside the change log; whose turn it is to apply."""
