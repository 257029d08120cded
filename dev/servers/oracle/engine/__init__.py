"""The engine: the dictionary, row versions with their storage, transactions, and who may do what."""
