"""What an apply has done: for people, for the task that has started it, and for the next one."""

from __future__ import annotations

import dataclasses
from typing import Any

from airflow_provider_cdc.core.errors import TargetError


@dataclasses.dataclass(slots=True)
class Applied:
    """What a run did to one table.

    :param rows: operation letter → change events that were applied
    :param position: the table's position in the source's log now
    :param committed_ms: when the newest of these events was committed at the source, in ms since 1970; 0 if that is not known
    """

    topic: str
    location: str
    first_batch: int
    last_batch: int
    rows: dict[str, int]
    position: dict[str, Any]
    seconds: float
    committed_ms: int = 0

    @property
    def events(self) -> int:
        return sum(self.rows.values())

    def joined(self, later: Applied) -> Applied:
        """Both as one."""
        rows = {letter: self.rows.get(letter, 0) + later.rows.get(letter, 0) for letter in {**self.rows, **later.rows}}
        return dataclasses.replace(
            later,
            first_batch=min(self.first_batch, later.first_batch),
            last_batch=max(self.last_batch, later.last_batch),
            rows=rows,
            seconds=round(self.seconds + later.seconds, 3),
            committed_ms=max(self.committed_ms, later.committed_ms),
        )


@dataclasses.dataclass(slots=True)
class Report:
    """What a run did, and the last batch of each table; see :class:`airflow_provider_cdc.changelog.applied.AppliedReports`.

    :param owner: of a run that goes on for a while: who it is
    :param rules: tells other rules of tables from those that were in force; empty if there are none
    """

    connector: str
    target: str
    location: str
    last_batch: int
    tables: list[Applied]
    failed: dict[str, str]
    lagging: dict[str, int]
    stands: dict[str, dict[str, Any]]
    seconds: float
    owner: str = ""
    rules: str = ""

    def refuse_failed(self) -> None:
        """:raises TargetError: some tables could not be brought up to date"""
        if not self.failed:
            return
        details = "\n".join(f"  {topic}: {text}" for topic, text in sorted(self.failed.items()))
        raise TargetError(
            f"{len(self.failed)} of {len(self.stands)} tables could not be brought up to date:\n{details}",
            safe="The other tables stand at the last batch; the change log keeps everything for these.",
            remedy="fix what the messages name, then run the apply again: each table goes on from its last batch",
        )
