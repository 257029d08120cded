"""From column buffers to Arrow arrays, one column at a time; the same code for rows of a snapshot and rows of the log.

May import ``kernels`` and ``core``, nothing else of this source.
"""
