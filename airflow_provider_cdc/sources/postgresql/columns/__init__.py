"""The values of columns: from the bytes that a server sends to arrays of the change log."""
