"""The wire: TNS packets, TTC messages, the logon, and the encodings of values."""
