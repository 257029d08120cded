"""From row blocks to a committed batch: the envelope, the one writer of events, the batch, the committer, the state of a run.

May import ``core.signals`` and below.
"""
