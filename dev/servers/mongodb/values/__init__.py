"""Documents and their values: BSON as bytes and in Python, the order of values, arithmetic, KeyString, and the server's errors."""
