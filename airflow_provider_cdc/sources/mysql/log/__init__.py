"""Reading the binary log: connection → events → transactions → blocks of rows; and positions in the log.

Begin with :mod:`.binlog_item_stream`. May import ``schema``, ``columns``, ``kernels`` and ``config``, ``connect``, ``position``, ``metrics``; nothing
of ``snapshot``.
"""
