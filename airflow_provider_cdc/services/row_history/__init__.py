"""The history of one row, with its present state at the source and at each target."""
