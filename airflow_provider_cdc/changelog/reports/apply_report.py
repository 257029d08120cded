"""Types of the JSON object that reports an apply.

:class:`airflow_provider_cdc.changelog.reports.apply_report_store.ApplyReports` stores it. A field that older versions, or some targets, do not write is
``NotRequired``.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict


class TableApplied(TypedDict):
    """The work of a run on one table: an entry of ``tables`` and ``unreported``.

    - ``topic``, ``location``: of the table; ``name``: its name in reports, if it is not the topic, as a route makes several tables of one topic
    - ``first_batch``, ``last_batch``: that were applied
    - ``rows``: operation letter → change events that were applied; of a table that a route makes, those of the topic
    - ``position``: the table's position in the source's log now
    - ``seconds``: that it took
    - ``committed_ms``: when the newest of these events was committed at the source, in ms since 1970; 0 if that is not known
    - ``freshness_s``: how long after that they were in the table; the clocks of two machines are compared
    - ``ways``: how they were written, one of :data:`airflow_provider_cdc.targets.lake.formats.target_interface.WAYS` → commits
    - ``rows_written``, ``rows_deleted``: rows of these events that came into the table, and rows that are gone
    - ``bytes_written``, ``files_written``: of new files, with the rows that were copied into them

    The last four are missing or ``None`` if the target does not report them.
    """

    topic: str
    location: str
    first_batch: int
    last_batch: int
    rows: dict[str, int]
    position: dict[str, Any]
    seconds: float
    committed_ms: NotRequired[int]
    freshness_s: NotRequired[float | None]
    ways: NotRequired[dict[str, int]]
    rows_written: NotRequired[int | None]
    rows_deleted: NotRequired[int | None]
    bytes_written: NotRequired[int | None]
    files_written: NotRequired[int | None]
    name: NotRequired[str]


class SourceTableEntry(TypedDict, total=False):
    """The part of a :class:`TableState` about the table at the source.

    - ``table``: its full name
    - ``dropped``: whether the source has dropped it
    """

    table: str
    dropped: bool


class TargetTableEntry(TypedDict, total=False):
    """The part of a :class:`TableState` that the rule of the table decides.

    - ``shared``: it has rows of other topics, too
    - ``texts``: of a shared table, column → its one text in all rows of the topic
    - ``topic``: of a table that a route makes
    - ``place``: the branch of the route whose rows it has
    - ``begins_after``: the batch after which it begins
    """

    shared: bool
    texts: dict[str, str]
    topic: str
    place: dict[str, Any]
    begins_after: int


class TableState(SourceTableEntry, TargetTableEntry):
    """The state of one table after a run: an entry of ``table_states``.

    - ``location``: of the table; empty if that is not known
    - ``batch``: its last batch
    - ``stamp``: the end of its log then, by which the next run knows it again without reading it; empty if it has to be inspected
    - ``bytes``: its size then
    - ``routed``: the topic has a route, and its tables could not be found
    - ``known``: false if the rules of tables have changed since, so that the rule of this one is to be checked again
    """

    location: str
    batch: int
    stamp: str
    bytes: NotRequired[int]
    routed: NotRequired[bool]
    known: NotRequired[bool]


class EarlierRun(TypedDict):
    """A run whose tables no task has reported yet: an entry of ``earlier``.

    - ``owner``: the task that has started it
    - ``tables``: its work
    """

    owner: str
    tables: list[TableApplied]


class TopicSelection(TypedDict):
    """The topics that the apply to a database takes.

    - ``topics``: their names; all, or those that match, if it is empty
    - ``regex``: which the whole name matches; ``None`` if there is none
    """

    topics: list[str]
    regex: str | None


class DatabaseAccess(TypedDict, total=False):
    """The access to a target database, without secrets.

    - ``conn_id``: of the Airflow connection
    - ``sink``: properties of the target
    """

    conn_id: str
    sink: dict[str, Any]


class ApplyOutcome(TypedDict):
    """The part of a report that metrics need.

    - ``last_batch``: that all tables have but the lagging ones; 0 if nothing was applied yet
    - ``tables``: the work of the run, see :func:`airflow_provider_cdc.changelog.reports.apply_report_store.merge_by_table`
    - ``failed``: table → the error
    - ``lagging``: table → its last batch, of those that are behind the others
    - ``table_states``: table → its state
    """

    last_batch: int
    tables: list[TableApplied]
    failed: dict[str, str]
    lagging: dict[str, int]
    table_states: dict[str, TableState]


class ApplyReport(ApplyOutcome):
    """The report of the last apply to one target.

    - ``connector``: its name
    - ``target``, ``location``: kind of the tables, and where they are
    - ``seconds``: that the run took
    - ``at``: when the report was written, in ISO form
    - ``owner``: the task that has started the run; empty if it was started by hand. A report without it only registers its target
    - ``rules``: digest of the rules of tables; empty if there are none
    - ``table_rules``: these rules, see :func:`airflow_provider_cdc.changelog.reports.apply_report_store.rules_of`
    - ``unreported``: the work of earlier runs that no report has
    - ``earlier``: earlier runs whose tables no task has reported, see :func:`airflow_provider_cdc.changelog.reports.apply_report_store.not_announced`
    - ``changelog``: identity of the change log
    - ``writer``: the run that has written its last batch: in a change log that was put back to an earlier state, another one writes a batch of this number
    - ``terminal``: tables of ``failed`` whose error a person must repair
    - ``selection``: of a database, the topics that the apply takes
    - ``database``: the access to a target database

    Tables are named by their topics. If a route brings the rows of a topic to several tables, each table is there by its own name, with ``topic`` and
    ``place``; the topic itself only if its tables could not be found (``routed``).
    """

    connector: NotRequired[str]
    target: str
    location: str
    seconds: float
    at: NotRequired[str]
    owner: NotRequired[str]
    rules: NotRequired[str]
    table_rules: NotRequired[str]
    unreported: NotRequired[list[TableApplied]]
    earlier: NotRequired[list[EarlierRun]]
    changelog: NotRequired[str]
    writer: NotRequired[str]
    terminal: NotRequired[list[str]]
    selection: NotRequired[TopicSelection]
    database: NotRequired[DatabaseAccess]
