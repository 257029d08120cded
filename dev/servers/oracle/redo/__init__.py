"""The redo, and the columns in which LogMiner shows it."""
