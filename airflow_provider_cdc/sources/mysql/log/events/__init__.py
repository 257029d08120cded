"""Events of the log: their types, what is read out of them in plain Python, and compressed ones as what they hold.

The lowest part of ``log``. May import ``columns`` and ``kernels``.
"""
