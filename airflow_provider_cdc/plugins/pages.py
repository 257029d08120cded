"""The plugin's pages as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.hooks import status_texts
from airflow_provider_cdc.plugins import activity
from airflow_provider_cdc.plugins.html import Raw, ago, facts, link, page, table

if TYPE_CHECKING:
    from airflow_provider_cdc.core.model.manifest import Manifest
    from airflow_provider_cdc.core.model.work import Work
    from airflow_provider_cdc.core.spi.records import BatchRecord, ConnectorRecord, NotificationRecord, SignalRecord


_MOST_TABLES = 100


def connectors(base: str, rows: Sequence[ConnectorRecord]) -> str:
    """All connectors."""
    if not rows:
        return page(base, "CDC connectors", [Raw("<p>No connector has run yet.</p>")])
    lines = []
    for row in rows:
        s = status_texts.summary(row)
        lines.append(
            (
                link(base, s["connector"], s["connector"]),
                s["source"] or "",
                activity.state(row),
                Raw(f"<code>{escape(status_texts.position_text(s['position']))}</code>"),
                link(base, str(s["batch"]), s["connector"], s["batch"]) if s["batch"] else "none",
                s["seq"],
                ago(row.moved_at),
                activity.holder(row),
            )
        )
    head = ("connector", "source", "state", "position", "last batch", "seq", "offset moved", "captured by")
    return page(base, "CDC connectors", [table(head, lines)])


def connector(
    base: str,
    row: ConnectorRecord,
    batches: Sequence[BatchRecord],
    reports: list[dict[str, Any]],
    trouble: str | None,
    *,
    signals: Sequence[SignalRecord] = (),
    notifications: Sequence[NotificationRecord] = (),
    works: Sequence[Work] = (),
) -> str:
    """One connector.

    :param signals: the newest ones
    :param notifications: the newest ones, oldest first
    :param works: what is at work now
    """
    s = status_texts.summary(row)
    name = s["connector"]
    known = [
        *activity.state_facts(row),
        ("source", s["source"] or ""),
        ("position", Raw(f"<code>{escape(status_texts.position_text(s['position']))}</code>")),
        ("seq", f"{s['seq']:,}"),
        ("offset moved", ago(row.moved_at)),
        ("captured by", activity.holder(row)),
        ("change log", Raw(f"<code>{escape(s['changelog'] or 'not recorded yet')}</code>")),
    ]
    if s["pending_tables"]:
        known.append(("still to be read", ", ".join(s["pending_tables"])))
    parts: list[str] = [facts(known)]
    parts += activity.works(works)
    parts += activity.signals(signals)
    parts += [Raw("<h2>Targets</h2>"), _targets(s["batch"], reports, trouble)]
    parts += activity.notifications(base, name, notifications)
    parts.append(Raw("<h2>Batches</h2>"))
    lines = [
        (
            link(base, str(b.batch), name, b.batch), b.created_at.strftime("%Y-%m-%d %H:%M:%S UTC"), b.events, b.bytes,
            len(b.topics), Raw(f"<code>{escape(status_texts.position_text(b.position))}</code>"),
        )
        for b in batches
    ]  # fmt: skip
    head = ("batch", "committed", "events", "bytes", "topics", "position after it")
    parts.append(table(head, lines) if lines else Raw("<p>None yet.</p>"))
    for context, values in row.metrics.items():
        parts += [Raw(f"<h2>Metrics of the last run: {escape(context)}</h2>"), facts(status_texts.metrics_text(values))]
    if row.registration is not None and row.registration.properties:
        parts += [
            Raw("<h2>Properties of the last run</h2>"),
            facts((k, _listed(v)) for k, v in row.registration.properties.items()),
        ]
    return page(base, f"Connector {name}", parts, refresh_s=5 if works or activity.moving(signals) else None)


def batch(
    base: str,
    row: BatchRecord,
    before: BatchRecord | None,
    manifest: Manifest | None,
    trouble: str | None,
    *,
    last: int,
) -> str:
    """One batch of a connector that has ``last`` of them."""
    name, number, committed = row.connector, row.batch, row.created_at
    known = [
        ("connector", link(base, name, name)),
        ("committed", f"{committed.strftime('%Y-%m-%d %H:%M:%S UTC')} ({status_texts.age(committed)})"),
        ("events", f"{row.events:,}"),
        ("seq", f"{row.first_seq:,} to {row.last_seq:,}"),
        ("position before", Raw(f"<code>{escape(_position_before(before, manifest))}</code>")),
        ("position after", Raw(f"<code>{escape(status_texts.position_text(row.position))}</code>")),
        ("manifest", Raw(f"<code>{escape(row.manifest)}</code>")),
    ]
    if before is not None:
        known.insert(2, ("after the batch before", f"{(committed - before.created_at).total_seconds():,.1f} s"))
    parts: list[str] = [facts(known), Raw("<h2>Topics</h2>")]
    topics = [(topic, n) for topic, n in sorted(row.topics.items(), key=lambda i: (-i[1], i[0]))]
    parts.append(table(("topic", "events"), topics) if topics else Raw("<p>No event, only schema changes.</p>"))
    if manifest is not None:
        parts += _manifest(manifest)
    elif trouble is not None:
        parts.append(Raw(f"<p class=quiet>The manifest cannot be read from here.</p><pre>{escape(trouble)}</pre>"))
    around = [link(base, f"batch {n}", name, n) for n in (number - 1, number + 1) if 0 < n <= last]
    parts.append(Raw(f"<p>{' · '.join(around)}</p>"))
    return page(base, f"Batch {number} of {name}", parts)


def trouble(base: str, text: str) -> str:
    """A page about an error."""
    return page(base, "CDC", [Raw(f"<pre class=bad>{escape(text)}</pre>")])


def _manifest(manifest: Manifest) -> list[str]:
    files = [
        (f.path.rsplit("/", 1)[-1], f.topic, f.schema_version, f.rows, f.bytes, f"{f.first_seq:,} to {f.last_seq:,}",
         ", ".join(f"{letter} {n:,}" for letter, n in sorted(f.counts.items())))
        for f in manifest.files
    ]  # fmt: skip
    parts: list[str] = [Raw("<h2>Files</h2>")]
    parts.append(table(("file", "topic", "schema version", "rows", "bytes", "seq", "operations"), files))
    if manifest.schema_changes:
        changes = [(f"{c.seq:,}", c.database, Raw(f"<code>{escape(c.ddl)}</code>")) for c in manifest.schema_changes]
        parts += [Raw("<h2>Schema changes</h2>"), table(("seq", "database", "statement"), changes)]
    parts.append(Raw(f"<p class=quiet>Written by {escape(manifest.writer)} under lease epoch {manifest.epoch}.</p>"))
    return parts


def _position_before(before: BatchRecord | None, manifest: Manifest | None) -> str:
    if manifest is not None:
        return status_texts.position_text(manifest.offset_before.position if manifest.offset_before else None)
    return status_texts.position_text(before.position if before else None)


def _targets(batch: int, reports: list[dict[str, Any]], trouble: str | None) -> str:
    if trouble is not None:
        return Raw(f"<p class=quiet>The change log cannot be read from here.</p><pre>{escape(trouble)}</pre>")
    if not reports:
        return Raw("<p>Nothing was applied yet.</p>")
    lines = []
    for r in reports:
        behind = batch - (r["last_batch"] or 0)
        failed = [f"{topic}: {text}" for topic, text in sorted((r["failed"] or {}).items())]
        lines.append(
            (
                r["target"], r["location"], r["last_batch"], _behind(behind),
                Raw(f"<span class=bad>{escape(chr(10).join(failed))}</span>"),
            )
        )  # fmt: skip
    head = table(("target", "location", "applied up to batch", "", "failed tables"), lines)
    return Raw(head + "".join(_measured(r) for r in reports if r["tables"]))


def _measured(report: dict[str, Any]) -> str:
    """The metrics of the tables that the last apply to a target has changed."""
    tables = list(report["tables"].items())
    lines = [
        (
            topic, m["events"], _number(m["rows_written"]), _number(m["rows_deleted"]), _number(m["bytes_written"]),
            _number(m["files_written"]), f"{m['seconds']:,.1f} s", ", ".join(f"{n:,} {way}" for way, n in (m["ways"] or {}).items()),
            "" if m["freshness_s"] is None else f"{m['freshness_s']:,.1f} s", m["last_batch"],
        )
        for topic, m in tables[:_MOST_TABLES]
    ]  # fmt: skip
    head = ("table", "events", "rows", "deleted", "bytes", "files", "took", "commits", "freshness", "up to batch")
    more = f"<p class=quiet>… and {len(tables) - _MOST_TABLES:,} more</p>" if len(tables) > _MOST_TABLES else ""
    what = f"Tables of the last apply to {escape(report['location'])} ({escape(report['target'])})"
    return Raw(f"<h3>{what}</h3>{table(head, lines)}{more}")


def _number(value: int | None) -> int | str:
    return "" if value is None else value


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _behind(batches: int) -> str:
    return "up to date" if batches <= 0 else f"{batches} batch{'es' if batches > 1 else ''} behind"
