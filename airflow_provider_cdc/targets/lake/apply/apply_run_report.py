"""The result of an apply: for people, for the task that has started it, and for the next one."""

from __future__ import annotations

import dataclasses
import time
from typing import Any, cast

from airflow_provider_cdc.changelog.reports.apply_report import ApplyReport, EarlierRun, TableApplied, TableState
from airflow_provider_cdc.changelog.reports.apply_report_store import merge_steps
from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.lake.formats.table_values import WriteMetrics


def _fields_of(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}


@dataclasses.dataclass(slots=True)
class TableApplyResult:
    """The result of a run for one table.

    :param rows: operation letter → change events that were applied
    :param position: the table's position in the source's log now
    :param seconds: that it took
    :param committed_ms: when the newest of these events was committed at the source, in ms since 1970; 0 if that is not known
    :param freshness_s: how long after that they were in the table; the clocks of two machines are compared
    :param ways: how they were written, one of :data:`airflow_provider_cdc.targets.lake.formats.target_interface.WAYS` → commits
    :param rows_written: rows of these events that came into the table; ``None``, like the others, if the format does not report them
    :param rows_deleted: rows that are gone
    :param bytes_written: of new files, with the rows that were copied into them
    :param name: the table's name in the report, if it is not the topic: a route makes several of one topic. ``rows`` are the topic's events then
    """

    topic: str
    location: str
    first_batch: int
    last_batch: int
    rows: dict[str, int]
    position: dict[str, Any]
    seconds: float
    committed_ms: int = 0
    freshness_s: float | None = None
    ways: dict[str, int] = dataclasses.field(default_factory=dict)
    rows_written: int | None = None
    rows_deleted: int | None = None
    bytes_written: int | None = None
    files_written: int | None = None
    name: str = ""

    def add_write_metrics(self, written: WriteMetrics | None) -> TableApplyResult:
        """Add the metrics of the table's write, and the age of the events now."""
        fresh = round(max(time.time() - self.committed_ms / 1000, 0.0), 3) if self.committed_ms else None
        if written is None:
            return dataclasses.replace(self, freshness_s=fresh)
        return dataclasses.replace(
            self,
            freshness_s=fresh,
            ways={written.way: 1},
            rows_written=written.rows,
            rows_deleted=written.deleted,
            bytes_written=written.bytes,
            files_written=written.files,
        )

    @property
    def event_count(self) -> int:
        return sum(self.rows.values())

    def merge_results(self, later: TableApplyResult) -> TableApplyResult:
        """Both as one."""
        return TableApplyResult(**merge_steps(self.to_document(), later.to_document()))

    def to_document(self) -> TableApplied:
        """Return the entry of the report."""
        return cast("TableApplied", _fields_of(self))


@dataclasses.dataclass(slots=True)
class ApplyRunReport:
    """The result of a run, and the last batch of each table.

    See :class:`airflow_provider_cdc.changelog.reports.apply_report.ApplyReport`.

    :param owner: the task that has started the run; empty if it is not needed
    :param rules: distinguishes other rules of tables from those that were in force; empty if there are none
    :param table_rules: these rules, for readers of the tables later; see :func:`airflow_provider_cdc.changelog.reports.apply_report_store.rules_of`
    :param unreported: work of earlier runs that no report has, see :mod:`airflow_provider_cdc.targets.lake.apply.unreported_writes`
    :param changelog: identity of the change log
    :param writer: the run that has written its last batch: in a change log that was put back to an earlier state, another one writes a batch of this number
    :param terminal: tables of ``failed`` whose error a person must repair
    :param earlier: runs before, whose tables no task has announced yet, see :func:`airflow_provider_cdc.changelog.reports.apply_report_store.not_announced`
    """

    connector: str
    target: str
    location: str
    last_batch: int
    tables: list[TableApplyResult]
    failed: dict[str, str]
    lagging: dict[str, int]
    table_states: dict[str, TableState]
    seconds: float
    owner: str = ""
    rules: str = ""
    table_rules: str = ""
    unreported: list[TableApplyResult] = dataclasses.field(default_factory=list)
    earlier: list[EarlierRun] = dataclasses.field(default_factory=list)
    changelog: str = ""
    writer: str = ""
    terminal: list[str] = dataclasses.field(default_factory=list)

    def to_document(self) -> ApplyReport:
        """Return the report as it is stored. It shares the entries of tables, which may be thousands, with this object."""
        results = {name: [table.to_document() for table in getattr(self, name)] for name in ("tables", "unreported")}
        return cast("ApplyReport", {**_fields_of(self), **results})

    def refuse_failed(self) -> None:
        """Raise an error if tables have failed.

        :raises TargetError: some tables could not be brought up to date
        """
        if not self.failed:
            return
        details = "\n".join(f"  {topic}: {text}" for topic, text in sorted(self.failed.items()))
        raise TargetError(
            f"Changes could not be applied to {len(self.failed)} of {len(self.table_states)} tables:\n{details}",
            safe="The other tables are at the last batch; the change log keeps all batches for the failed tables.",
            remedy="fix the errors above, then run the apply again: each table continues from its last batch",
        )
