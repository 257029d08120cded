"""The capture run: plan, snapshot, stream; schema changes and signals in between.

The top of core: puts everything below together. ``capture.Capture`` is what callers use.
"""
