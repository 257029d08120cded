"""Reading the binary log: connection → events → transactions → blocks of rows, and the places in it.

:mod:`.stream` is the door. May import ``schema``, ``columns``, ``kernels`` and the heads below ``checks``; nothing of ``snapshot``.
"""
