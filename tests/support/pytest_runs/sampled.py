"""The sample of many like cases that a test run tries.

It tries all of them with ``--long``, otherwise every second or third, another part in each run.

The part follows from the hash seed, which ``dev/test`` chooses again and prints; ``PYTHONHASHSEED=… dev/test`` repeats a run.
"""

from __future__ import annotations

import os
import zlib
from random import Random


class CaseSample:
    """Says of each case, by its number, whether it is tried; the fixture ``sampled`` of all tests.

    :param long: whether all cases are
    """

    def __init__(self, *, long: bool, seed: int | None = None) -> None:
        self.all = long
        self._seed = int(os.environ.get("PYTHONHASHSEED", "0") or 0) if seed is None else seed

    def random(self, name: str) -> Random:
        """Draws for a test, others in each run.

        >>> CaseSample(long=False, seed=7).random("a").random() == CaseSample(long=False, seed=8).random("a").random()
        False
        """
        return Random(f"{name} {self._seed}")

    def of(self, number: int, every: int) -> bool:
        """Check whether the case is tried.

        >>> [n for n in range(6) if CaseSample(long=False, seed=7).of(n, every=3)]
        [1, 4]
        """
        return self.all or (number - self._seed) % every == 0

    def cases(self, name: str, number: int, every: int) -> set[int]:
        """Choose the cases of a test to try, one at least; tests with the same cases try different ones.

        >>> [CaseSample(long=False, seed=7).cases(name, 3, every=3) for name in ("a", "b", "c")]
        [{1}, {2}, {1}]
        """
        every = min(every, number)
        return {n for n in range(number) if self.of(n + zlib.crc32(name.encode()), every)}
