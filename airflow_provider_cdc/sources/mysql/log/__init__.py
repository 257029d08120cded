"""Reading the binary log: connection → events → transactions → blocks of rows; and positions in the log.

Begin with :mod:`.stream`. May import ``schema``, ``columns``, ``kernels`` and ``config``, ``connect``, ``position``, ``metrics``; nothing
of ``snapshot``.
"""
