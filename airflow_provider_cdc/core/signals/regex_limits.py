"""Bounds the work of regular expressions in signals, before anything is matched.

Python's matching backtracks, holds up every other thread meanwhile, and cannot be interrupted. A short pattern such as
``([a-z]+.?)+`` can take for ever. So the steps are counted first, as if every character that a pattern asks for matched: that
depends on the pattern's structure alone, and gives an upper bound.

    >>> count_match_steps("shop.orders", [11]), count_match_steps("shop[.](orders|items)", [11])
    (0, 20.0)
    >>> count_match_steps("([a-z]+.?)+", [24])
    Traceback (most recent call last):
    airflow_provider_cdc.core.signals.regex_limits.RegexTooComplex
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

MOST: Final = 1e9
"""Steps that the patterns of one signal may take: some seconds in the worst case."""
MOST_AT_ONCE: Final = 1e7
"""Steps that one pattern may take for one name, during which the process does nothing else: less than a second."""
LONGEST: Final = 1 << 16
"""Characters of a pattern."""

_Lengths = npt.NDArray[np.float64]
"""In how many ways a piece of a pattern can take 0, 1, 2 … characters."""
_PARSER: Any = importlib.import_module("re._parser")  # there is no public way to a pattern's structure
_ONE = {"LITERAL", "NOT_LITERAL", "ANY", "IN"}
_REPEATS = {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}


class RegexTooComplex(Exception):
    """Matching could take too many steps."""


def count_match_steps(pattern: str, lengths: Sequence[int]) -> float:
    """Count the steps that it may take at most to match a pattern with names of these lengths; 0 where there is only one way.

    :raises RegexTooComplex: too many for a single name, or the pattern itself is too long or too deep
    :raises re.error: it is no regular expression
    """
    if len(pattern) > LONGEST:
        raise RegexTooComplex
    try:
        tree = _PARSER.parse(pattern)
        if not lengths or all(str(op) in _ONE for op, _ in tree):
            return 0
        counted = _StepCounter(max(lengths))
        counted.count_sequence(tree, counted.nothing)
    except RecursionError:
        raise RegexTooComplex from None
    upto = np.cumsum(counted.steps)
    return float(sum(upto[n] for n in lengths))


class _StepCounter:
    """Counts the ways through one pattern.

    :param longest: characters of the longest name
    :ivar steps: ways that are tried, by the characters that they have taken until then
    """

    def __init__(self, longest: int) -> None:
        self._n = longest + 1
        self.steps: _Lengths = np.zeros(self._n)
        self.nothing: _Lengths = np.zeros(self._n)
        self.nothing[0] = 1

    def count_sequence(self, tree: Iterable[tuple[Any, Any]], before: _Lengths) -> _Lengths:
        """Count the ways behind some pieces of the pattern, given the ways before them."""
        for op, argument in tree:
            if not before.any():  # longer than any name
                break
            before = self._piece(str(op), argument, before)
        return before

    def _piece(self, op: str, argument: Any, before: _Lengths) -> _Lengths:
        if op in _ONE:
            return self._counted(_shifted(before, 1))
        if op in _REPEATS:
            least, most, tree = argument
            return self._repeat(int(least), int(most), tree, before)
        match op:
            case "AT":
                return before
            case "SUBPATTERN":
                return self.count_sequence(argument[3], before)
            case "ATOMIC_GROUP":
                return self.count_sequence(argument, before)
            case "BRANCH":
                return self._either(argument[1], before)
            case "GROUPREF_EXISTS":
                return self._either([tree for tree in argument[1:] if tree is not None], before)
            case "ASSERT" | "ASSERT_NOT":
                self.count_sequence(argument[1], before)
                return before
            case _:  # a reference to a group, which is of any length, or something that came after this was written
                return self._counted(np.cumsum(before))

    def _either(self, trees: Sequence[Any], before: _Lengths) -> _Lengths:
        steps = np.zeros(self._n)
        for tree in trees:
            steps += self.count_sequence(tree, before)
            self._counted(before)
        return self._counted(steps)

    def _repeat(self, least: int, most: int, tree: Any, before: _Lengths) -> _Lengths:
        if len(tree) == 1 and str(tree[0][0]) in _ONE:
            upto = np.cumsum(_shifted(before, least))
            return self._counted(upto - _shifted(upto, min(most, self._n + least) - least + 1))
        steps, turns = np.zeros(self._n), 0
        while before.any() and turns <= most:
            if turns >= least:
                steps += before
            if turns >= self._n:  # turns that take nothing: no more of them are made than have to be
                if turns < least:
                    raise RegexTooComplex
                break
            before, turns = self.count_sequence(tree, before), turns + 1
            self._counted(before)
        return self._counted(steps)

    def _counted(self, steps: _Lengths) -> _Lengths:
        self.steps += steps
        if self.steps.sum() > MOST_AT_ONCE:
            raise RegexTooComplex
        return steps


def _shifted(lengths: _Lengths, by: int) -> _Lengths:
    shifted = np.zeros_like(lengths)
    if by < len(lengths):
        shifted[by:] = lengths[: len(lengths) - by]
    return shifted
