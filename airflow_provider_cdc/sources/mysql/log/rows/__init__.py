"""Row events: table maps, the byte layout of a table's rows, and decoding.

May import ``log.events``, ``log.transaction_ids``, ``schema``, ``columns`` and ``kernels``; nothing else of ``log``.
"""
