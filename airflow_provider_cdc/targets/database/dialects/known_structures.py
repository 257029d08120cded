"""Structures of tables as they were read, each as long as its stamp in the catalog is the same."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from airflow_provider_cdc.targets.database.schema.target_table import TargetTableName

CHECKED_S = 1.0
"""For so long a table is taken to be what a check has found: longer transactions check it again."""


class KnownStructures:
    """Facts about tables that hold until their structure changes.

        >>> known, table = KnownStructures(), TargetTableName("orders")
        >>> known.check([table], {table: "1"})
        >>> known.keep(table, "key", ("id",))
        >>> known.check([table], {table: "2"})
        >>> known.find(table, "key") is None
        True

    A fact is kept only for a table with a stamp, and a stamp is read before the facts: a change between both leads to another stamp, and is noticed by the next check.
    """

    def __init__(self) -> None:
        self._facts = dict[TargetTableName, dict[str, Any]]()
        self._stamps = dict[TargetTableName, str]()
        self._checked = dict[TargetTableName, float]()

    def check(self, names: Iterable[TargetTableName], stamps: Mapping[TargetTableName, str]) -> None:
        """Drop the facts of tables that have changed.

        :param stamps: those that the tables have now
        """
        now = time.monotonic()
        for name in names:
            if self._stamps.get(name) != stamps.get(name):
                self.forget(name)
            if name in stamps:
                self._stamps[name], self._checked[name] = stamps[name], now

    def is_checked(self, name: TargetTableName) -> bool:
        """Check whether the facts of a table were compared with its stamp lately."""
        return time.monotonic() - self._checked.get(name, float("-inf")) < CHECKED_S

    def find(self, name: TargetTableName, fact: str) -> Any:
        """Return a fact about a table; ``None`` if it is not known."""
        return self._facts.get(name, {}).get(fact)

    def keep(self, name: TargetTableName, fact: str, value: Any) -> None:
        """Keep a fact about a table, if its stamp is known."""
        if name in self._stamps:
            self._facts.setdefault(name, {})[fact] = value

    def forget(self, name: TargetTableName) -> None:
        """Drop the facts of one table, which is changed now, or is not as it was read."""
        for by_table in (self._facts, self._stamps, self._checked):
            by_table.pop(name, None)

    def expire(self) -> None:
        """Have each table checked again before its facts are used."""
        self._checked.clear()

    def clear(self) -> None:
        """Drop all facts: a transaction was undone, and its changes of tables with it."""
        for by_table in (self._facts, self._stamps, self._checked):
            by_table.clear()
