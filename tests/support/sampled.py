"""Which of many like cases a test run tries: all of them with ``--long``, otherwise every second or third, another part in each run.

The part follows from the hash seed, which ``dev/test`` chooses anew and prints; ``PYTHONHASHSEED=… dev/test`` repeats a run.
"""

from __future__ import annotations

import os


class Sampled:
    """Says of each case, by its number, whether it is tried; the fixture ``sampled`` of all tests.

    :param long: whether all cases are
    """

    def __init__(self, *, long: bool, seed: int | None = None) -> None:
        self.all = long
        self._seed = int(os.environ.get("PYTHONHASHSEED", "0") or 0) if seed is None else seed

    def of(self, number: int, every: int) -> bool:
        """Whether the case is tried.

        >>> [n for n in range(6) if Sampled(long=False, seed=7).of(n, every=3)]
        [1, 4]
        """
        return self.all or (number - self._seed) % every == 0
