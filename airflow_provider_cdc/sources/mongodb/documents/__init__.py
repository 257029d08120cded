"""Documents: from the bytes of BSON that the server sends to arrays and to text, and the effect of updates on them.

No driver is needed here, and no Python object is made for a document, but where updates are applied one by one.
"""
