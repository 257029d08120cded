"""The effect of update documents on a document."""
