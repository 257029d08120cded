"""Texts about the status of connectors, for pages and commands; made from the state tables and the change log."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypedDict

from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.core.lifecycle.connector_status import ConnectorState, state_of
from airflow_provider_cdc.core.model.log_headroom import LogWindow
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.services.text.pause_gap_signal_texts import progress_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from airflow_provider_cdc.changelog.files.change_log import ChangeLog
    from airflow_provider_cdc.changelog.reports.apply_report import ApplyReport, TableApplied
    from airflow_provider_cdc.core.lifecycle.connector_status import ConnectorStatus
    from airflow_provider_cdc.core.model.job_progress import JobProgress
    from airflow_provider_cdc.core.model.metric_samples import StoredSeries
    from airflow_provider_cdc.core.spi.state_records import ConnectorRecord


def position_text(position: dict[str, Any] | None) -> str:
    """Format a stored position as text, in the source's own terms.

    >>> position_text({"file": "binlog.000001", "pos": 2215, "gtids": ""})
    'file binlog.000001, pos 2215'
    """
    parts = [f"{k} {v}" for k, v in (position or {}).items() if v not in ("", None) and not isinstance(v, (dict, list))]
    return ", ".join(parts) or "none"


def format_age(moment: datetime | None, now: datetime | None = None) -> str:
    """Format how long ago something was.

    >>> format_age(datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 0, 2, 30, tzinfo=UTC))
    '2 min ago'
    """
    if moment is None:
        return "never"
    seconds = max(0, int(((now or datetime.now(UTC)) - moment).total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit} ago"
    return f"{seconds} s ago"


def format_remaining_time(moment: datetime, now: datetime | None = None) -> str:
    """Format how soon something is.

    >>> format_remaining_time(datetime(2024, 1, 1, 5, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC))
    'in 5 h'
    """
    now = now or datetime.now(UTC)
    return (
        f"in {format_age(now, moment).removesuffix(' ago')}"
        if moment > now
        else f"now: it was due {format_age(moment, now)}"
    )


def log_text(window: LogWindow, now: datetime | None = None) -> str:
    """Format how far a connector is from both ends of its source's log; empty where nothing is known.

    >>> log_text(LogWindow(behind_bytes=48000))
    '48 kB behind its end'
    """
    parts = [] if window.behind_bytes is None else [f"{_size(window.behind_bytes)} behind its end"]
    if window.gone_at is not None:
        parts.append(f"removed at the position {format_remaining_time(window.gone_at, now)}")
    return "; ".join(parts)


def summarize_connector(connector: ConnectorRecord) -> dict[str, Any]:
    """Summarize a connector in a line, fit for JSON."""
    moved, registration = connector.moved_at, connector.registration
    return {
        "connector": connector.connector,
        "source": connector.source_kind,
        "position": connector.offset_position,
        "seq": connector.last_seq,
        "batch": connector.last_batch,
        "pending_tables": pending_tables(connector),
        "moved_at": None if moved is None else moved.isoformat(timespec="seconds"),
        "state": state_of(connector)[0].value,
        "captured_by": connector.owner,
        "lease_s": round(connector.lease_s, 1),
        "changelog": None if registration is None else registration.changelog,
    }


def pending_tables(connector: ConnectorRecord) -> list[str]:
    """Tables that are still to be read whole."""
    return [] if connector.offset is None else sorted(connector.offset.snapshot.pending)


def state_text(status: ConnectorStatus) -> str:
    """Format the state of a connector in a line.

    >>> state_text(status)
    'paused for 2 min, by ada: upgrade of the database'
    """
    text = "idle" if status.state is ConnectorState.UNASSIGNED else str(status.state.value)
    if status.state_since is not None:
        text += f" for {format_age(status.state_since).removesuffix(' ago')}"
    if status.owner is not None:
        text += f", by {status.owner}"
    if status.desired_state != "running":
        request_text = f"by {status.requested_by}" + (f": {status.reason}" if status.reason else "")
        text += f", {request_text}" if status.owner is None else f"; to be {status.desired_state.value}, {request_text}"
    return text


def format_wait(connector: str, after: str, until: datetime) -> str:
    """Format the wait of a connector after a failure, with the command that ends it.

    >>> format_wait("shop", "PositionLost", datetime(2025, 1, 2, 4, tzinfo=UTC))
    'Connector shop waits after PositionLost until 2025-01-02 04:00:00 UTC. A repair begins a run at once; so does `airflow cdc restart shop`.'
    """
    return (
        f"Connector {connector} waits after {after} until {until:%Y-%m-%d %H:%M:%S} UTC. "
        f"A repair begins a run at once; so does `{format_cdc_command('restart', connector)}`."
    )


def status_lines(status: ConnectorStatus, lag: str = "") -> Iterator[str]:
    """Format the status of a connector as lines of text.

    :param lag: its lag behind the source, in words
    """
    yield f"{status.connector} ({status.source or 'unknown source'}): {state_text(status)}"
    if status.desired_state != "running":
        yield f"  To resume:  {format_cdc_command('resume', status.connector)}"
    moved = f"offset moved {format_age(status.moved_at)}"
    yield f"  Position:   {position_text(status.position)}; batch {status.batch}, seq {status.seq:,}; {moved}"
    if status.run_ended_at is not None:
        yield f"  Last run:   ended {format_age(status.run_ended_at)}"
    if status.last_error is not None:
        first, *more = status.last_error.splitlines() or [""]
        yield f"  Last error: {format_age(status.last_error_at)}: {first}"
        yield from (f"              {line}" for line in more)
    if status.waits_after is not None and status.waits_until is not None:
        yield f"  Waits:      {format_wait(status.connector, status.waits_after, status.waits_until)}"
    for owed in status.owed:
        first, *more = owed.splitlines()
        yield f"  Owed:       {first}"
        yield from (f"              {line}" for line in more)
    if text := log_text(LogWindow.from_metrics(status.metrics.get("streaming", {}))):
        yield f"  Source log: {text}"
    if lag:
        yield f"  Lag:        {lag}"
    for table, why in status.stopped.items():
        yield f"  Stopped: {table}: {why}"
    for table, text in status.set_aside.items():
        yield f"  Set aside:  {table}: {text}"
    if status.pending:
        yield f"  Pending:    {', '.join(status.pending)}"
    if status.waiting:
        yield f"  Read ahead: {', '.join(status.waiting)}"
    if status.scans:
        scans = ", ".join(f"{table} ({rows:,} rows so far)" for table, rows in status.scans.items())
        yield f"  Incremental snapshot{' (paused)' if status.scans_paused else ''}: {scans}"
    for signal in status.signals:
        parts = (signal.state, signal.message, progress_text(signal.progress))
        yield f"  Signal {signal.number}: {signal.type} (id {signal.id}), {', '.join(filter(None, parts))}"


def metrics_lines(metrics: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Format the metrics of a connector's last run as lines of text.

    :param metrics: context → name → value
    """
    for context, values in metrics.items():
        yield f"  Last run, {context}:"
        yield from (f"    {name:<38} {value}".rstrip() for name, value in metrics_text(values))


def series_rows(series: StoredSeries) -> Iterator[tuple[str, str]]:
    """Format the metrics of a series as names and texts; of a histogram, how many values there were and their mean."""
    for name, value in sorted((series.gauges | series.counters).items()):
        yield name, f"{value:,.3f}".rstrip("0").rstrip(".")
    for name, histogram in sorted(series.histograms.items()):
        number = sum(histogram.classes)
        yield name, f"{number:,} times, {histogram.total / number:,.1f} s on average"


def metrics_text(values: Mapping[str, Any], entries: int = 10) -> Iterator[tuple[str, str]]:
    """Metrics of one context as names and texts, lists and maps in one line.

    >>> list(metrics_text({"RowsScanned": {"shop.a": 1200}, "CapturedTables": ["shop.a", "shop.b"]}))
    [('RowsScanned', 'shop.a: 1,200'), ('CapturedTables', 'shop.a, shop.b')]
    """
    for name, value in values.items():
        if isinstance(value, dict):
            value = [f"{key}: {_figure(entry)}" for key, entry in value.items()]
        if isinstance(value, list):
            more = [f"… and {len(value) - entries} more"] if len(value) > entries else []
            value = ", ".join([*map(str, value[:entries]), *more])
        yield name, _figure(value)


def _figure(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


class AppliedTarget(TypedDict):
    """Summary of the report of the last apply to one target.

    - ``target``, ``location``, ``last_batch``, ``failed``, ``lagging``, ``seconds``: as in
      :class:`~airflow_provider_cdc.changelog.reports.apply_report.ApplyReport`
    - ``name``: of the target: the kind of its tables with their location, or a database with its connection
    - ``at``: when the report was written, in ISO form; ``None`` if that is not known
    - ``topics``: table → its topic, of those that are not called by it, and have failed or are behind
    - ``tables``: table → its metrics, see :func:`airflow_provider_cdc.changelog.reports.apply_report_store.build_table_metrics`
    """

    target: str
    location: str
    name: str
    at: str | None
    last_batch: int
    failed: dict[str, str]
    lagging: dict[str, int]
    seconds: float
    topics: dict[str, str]
    tables: dict[str, dict[str, Any]]


def list_applied_targets(changelog: ChangeLog, connector: str) -> list[AppliedTarget]:
    """Return a summary of the report of the last apply to each target."""
    from airflow_provider_cdc.changelog.reports.apply_report_store import (
        ApplyReports,
        build_table_metrics,
        merge_by_table,
    )

    return [
        {
            "target": report["target"],
            "location": report["location"],
            "name": format_target_name(
                report["target"], report["location"], (report.get("database") or {}).get("conn_id", "")
            ),
            "at": report.get("at"),
            "last_batch": report["last_batch"],
            "failed": report["failed"],
            "lagging": report["lagging"],
            "seconds": report["seconds"],
            "topics": _topics(report),
            "tables": build_table_metrics(merge_by_table(report["tables"])),
        }
        for report in ApplyReports(changelog.storage, connector).list_reports()
    ]


def format_target_name(target: str, location: str, conn_id: str = "") -> str:
    """Return the name of a target for people: the kind of its tables with their location, or a database with its connection.

    >>> format_target_name("delta", "s3://lake/shop/{table}")
    'delta at s3://lake/shop/{table}'
    >>> format_target_name("database", "postgresql://dwh/sales", "sales_dwh")
    'database sales_dwh'
    """
    return f"{target} {conn_id}" if conn_id else f"{target} at {location}"


def target_place(location: str) -> str:
    """Return the short, stable name of a location that metrics carry as a tag.

    >>> len(target_place("s3://lake/shop/{table}"))
    8
    """
    return hashlib.sha256(location.encode()).hexdigest()[:8]


def beside_changelog(connector: ConnectorRecord) -> tuple[list[AppliedTarget], list[JobProgress], str | None]:
    """Return the results of applies to the targets of a connector, see :func:`list_applied_targets`, and the active jobs.

    If the change log cannot be read from here, there is a text that says so.
    """
    from airflow_provider_cdc.services.connectors.connector_handle import access_of

    try:
        access = access_of(connector)
        if access is None:
            return [], [], None
        changelog = access.open_change_log()
        return (
            list_applied_targets(changelog, connector.connector),
            changelog.open_progress_board(connector.connector).list_work(),
            None,
        )
    except (CdcError, OSError) as e:
        return [], [], describe_error(e)


def work_lines(works: Iterable[JobProgress]) -> Iterator[str]:
    """Format the active jobs as lines of text."""
    yield from (f"  At work:    {work_text(work)}" for work in works)


def work_text(work: JobProgress) -> str:
    """Format how far a work is, and which one.

    >>> work_text(work)
    'Apply: 12 of 200 tables (6 %), about 4 min left; at work: shop.orders (batch 7 of 523) [delta at /lake]'
    """
    return work.progress_text + (f" [{work.where}]" if work.where else "")


def target_lines(reports: Iterable[AppliedTarget], trouble: str | None, most: int = 10) -> Iterator[str]:
    """Format the results of applies to the targets of a connector as lines of text.

    :param most: tables of a target that are named, those with the most events in the last apply
    """
    if trouble is not None:
        yield f"  Targets:    the change log cannot be read from here: {trouble.splitlines()[0]}"
    for report in reports:
        yield f"  Target {report['target']} at {report['location']}: applied up to batch {report['last_batch']}"
        behind = report.get("lagging") or {}
        for topic, text in sorted(report["failed"].items()):
            stays = f", and stays at batch {behind[topic]}" if topic in behind else ""
            yield f"    {topic} failed{stays}: {str(text).splitlines()[0]}"
        for topic in sorted(behind.keys() - report["failed"].keys()):
            yield f"    {topic} is behind, at batch {behind[topic]}"
        tables = list(report["tables"].items())
        for topic, metrics in tables[:most]:
            fresh = metrics["freshness_s"]
            parts = (
                f"{metrics['events']:,} events",
                written_text(metrics),
                f"{metrics['seconds']:,.1f} s",
                "" if fresh is None else f"freshness {fresh:,.1f} s",
            )
            yield f"    {topic}: {', '.join(filter(None, parts))}"
        if len(tables) > most:
            yield f"    … and {len(tables) - most:,} more tables"


def _topics(report: ApplyReport) -> dict[str, str]:
    """Table → its topic, of those that are not called by it, and have failed or are behind."""
    from airflow_provider_cdc.changelog.reports.apply_report_store import topic_of

    return {
        name: topic_of(report, name)
        for name in {*report["failed"], *report["lagging"]}
        if topic_of(report, name) != name
    }


_LETTERS = {"r": "read", "c": "created", "u": "updated", "d": "deleted", "t": "truncated"}


def table_text(table: TableApplied) -> str:
    """Format the work of an apply on one table.

    :func:`airflow_provider_cdc.changelog.reports.apply_report_store.merge_by_table` gives it.

    >>> table_text({"topic": "shop.orders", "rows": {"c": 1200}, "seconds": 0.4, "freshness_s": 2.1, "ways": {"commit": 1},
    ...     "rows_written": 1200, "rows_deleted": 0, "bytes_written": 48000, "files_written": 1})
    'shop.orders: 1,200 created; 1,200 rows written, 48 kB in 1 file by commit; 0.4 s, 2.1 s after the source'
    """
    events = ", ".join(f"{n:,} {_LETTERS.get(letter, letter)}" for letter, n in table["rows"].items())
    fresh = table.get("freshness_s")
    took = f"{table['seconds']:,.1f} s" + (f", {fresh:,.1f} s after the source" if fresh is not None else "")
    return f"{table.get('name') or table['topic']}: " + "; ".join(
        filter(None, (events or "schema changes only", written_text(table), took))
    )


def written_text(table: Mapping[str, Any]) -> str:
    """Format the writes to a table, as far as they are known."""
    rows, gone, files = (table.get(name) for name in ("rows_written", "rows_deleted", "files_written"))
    parts = [] if rows is None else [f"{rows:,} rows written"]
    parts += [f"{gone:,} rows deleted"] if gone else []
    if files is not None:
        parts.append(f"{_size(table.get('bytes_written') or 0)} in {files:,} file{'' if files == 1 else 's'}")
    ways = ", ".join(way if n == 1 else f"{n:,} {way}s" for way, n in (table.get("ways") or {}).items())
    return ", ".join(parts) + (f" by {ways}" if ways else "")


def _size(number: int) -> str:
    """Bytes for people."""
    size = float(number)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"
