"""The plugin's pages as HTML: plain, readable at a glance, without scripts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_provider_cdc.hooks import overview

if TYPE_CHECKING:
    from airflow_provider_cdc.core.manifest import Manifest

_STYLE = """
:root { color-scheme: light dark; }
body { font: 14px/1.5 system-ui, sans-serif; margin: 1.5rem auto; max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: .2rem 0 1rem; } h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid #8884; vertical-align: top; }
th { font-weight: 600; white-space: nowrap; } td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; margin: 0; } dt { font-weight: 600; } dd { margin: 0; }
code, pre { font: 12.5px ui-monospace, monospace; overflow-wrap: anywhere; white-space: pre-wrap; }
.bad { color: #c0262d; } .quiet { opacity: .65; }
"""


class Raw(str):
    """HTML that is not escaped again."""


def connectors(base: str, rows: list[dict[str, Any]]) -> str:
    """All connectors."""
    if not rows:
        return _page(base, "CDC connectors", [Raw("<p>No connector has run yet.</p>")])
    lines = []
    for row in rows:
        s = overview.summary(row)
        lines.append(
            (
                _link(base, s["connector"], s["connector"]),
                s["source"] or "",
                Raw(f"<code>{escape(overview.position_text(s['position']))}</code>"),
                _link(base, str(s["batch"]), s["connector"], s["batch"]) if s["batch"] else "none",
                s["seq"],
                _ago(row["updated_at"]),
                _holder(row),
            )
        )
    head = ("connector", "source", "position", "last batch", "seq", "offset moved", "captured by")
    return _page(base, "CDC connectors", [_table(head, lines)])


def connector(
    base: str, row: dict[str, Any], batches: list[dict[str, Any]], reports: list[dict[str, Any]], trouble: str | None
) -> str:
    """One connector."""
    s = overview.summary(row)
    name = s["connector"]
    facts = [
        ("source", s["source"] or ""),
        ("position", Raw(f"<code>{escape(overview.position_text(s['position']))}</code>")),
        ("seq", f"{s['seq']:,}"),
        ("offset moved", _ago(row["updated_at"])),
        ("captured by", _holder(row)),
        ("change log", Raw(f"<code>{escape(s['changelog'] or 'not recorded yet')}</code>")),
    ]
    if s["pending_tables"]:
        facts.append(("still to be read", ", ".join(s["pending_tables"])))
    parts: list[str] = [_facts(facts), Raw("<h2>Targets</h2>"), _targets(s["batch"], reports, trouble)]
    parts.append(Raw("<h2>Batches</h2>"))
    lines = [
        (
            _link(base, str(b["batch"]), name, b["batch"]), b["created_at"].strftime("%Y-%m-%d %H:%M:%S UTC"), b["events"],
            b["bytes"], len(b["topics"]), Raw(f"<code>{escape(overview.position_text(b['position']))}</code>"),
        )
        for b in batches
    ]  # fmt: skip
    head = ("batch", "committed", "events", "bytes", "topics", "position after it")
    parts.append(_table(head, lines) if lines else Raw("<p>None yet.</p>"))
    if row["properties"]:
        parts += [
            Raw("<h2>Properties of the last run</h2>"),
            _facts((k, _listed(v)) for k, v in row["properties"].items()),
        ]
    return _page(base, f"Connector {name}", parts)


def batch(
    base: str,
    row: dict[str, Any],
    before: dict[str, Any] | None,
    manifest: Manifest | None,
    trouble: str | None,
    *,
    last: int,
) -> str:
    """One batch of a connector that has ``last`` of them."""
    name, number = row["connector"], row["batch"]
    committed: datetime = row["created_at"]
    facts = [
        ("connector", _link(base, name, name)),
        ("committed", f"{committed.strftime('%Y-%m-%d %H:%M:%S UTC')} ({overview.age(committed)})"),
        ("events", f"{row['events']:,}"),
        ("seq", f"{row['first_seq']:,} to {row['last_seq']:,}"),
        ("position before", Raw(f"<code>{escape(_position_before(before, manifest))}</code>")),
        ("position after", Raw(f"<code>{escape(overview.position_text(row['position']))}</code>")),
        ("manifest", Raw(f"<code>{escape(row['manifest'])}</code>")),
    ]
    if before is not None:
        facts.insert(2, ("after the batch before", f"{(committed - before['created_at']).total_seconds():,.1f} s"))
    parts: list[str] = [_facts(facts), Raw("<h2>Topics</h2>")]
    topics = [(topic, n) for topic, n in sorted(row["topics"].items(), key=lambda i: (-i[1], i[0]))]
    parts.append(_table(("topic", "events"), topics) if topics else Raw("<p>No event, only changes of structure.</p>"))
    if manifest is not None:
        parts += _manifest(manifest)
    elif trouble is not None:
        parts.append(Raw(f"<p class=quiet>The manifest cannot be read from here.</p><pre>{escape(trouble)}</pre>"))
    around = [_link(base, f"batch {n}", name, n) for n in (number - 1, number + 1) if 0 < n <= last]
    parts.append(Raw(f"<p>{' · '.join(around)}</p>"))
    return _page(base, f"Batch {number} of {name}", parts)


def trouble(base: str, text: str) -> str:
    """Something is not as it should be."""
    return _page(base, "CDC", [Raw(f"<pre class=bad>{escape(text)}</pre>")])


def _manifest(manifest: Manifest) -> list[str]:
    files = [
        (f.path.rsplit("/", 1)[-1], f.topic, f.schema_version, f.rows, f.bytes, f"{f.first_seq:,} to {f.last_seq:,}",
         ", ".join(f"{letter} {n:,}" for letter, n in sorted(f.counts.items())))
        for f in manifest.files
    ]  # fmt: skip
    parts: list[str] = [Raw("<h2>Files</h2>")]
    parts.append(_table(("file", "topic", "schema version", "rows", "bytes", "seq", "operations"), files))
    if manifest.schema_changes:
        changes = [(f"{c.seq:,}", c.database, Raw(f"<code>{escape(c.ddl)}</code>")) for c in manifest.schema_changes]
        parts += [Raw("<h2>Changes of structure</h2>"), _table(("seq", "database", "statement"), changes)]
    parts.append(Raw(f"<p class=quiet>Written by {escape(manifest.writer)} under lease epoch {manifest.epoch}.</p>"))
    return parts


def _position_before(before: dict[str, Any] | None, manifest: Manifest | None) -> str:
    if manifest is not None:
        return overview.position_text(manifest.offset_before.position if manifest.offset_before else None)
    return overview.position_text(before["position"] if before else None)


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
                r["target"], r["last_batch"], _behind(behind),
                Raw(f"<span class=bad>{escape(chr(10).join(failed))}</span>"),
            )
        )  # fmt: skip
    return _table(("target", "applied up to batch", "", "failed tables"), lines)


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _behind(batches: int) -> str:
    return "up to date" if batches <= 0 else f"{batches} batch{'es' if batches > 1 else ''} behind"


def _holder(row: dict[str, Any]) -> str:
    if row["owner"] is None:
        return Raw("<span class=quiet>nobody now</span>")
    return f"{row['owner']} (lease ends in {row['lease_s']:.0f} s unless renewed)"


def _ago(moment: datetime | None) -> str:
    if moment is None:
        return "never"
    return Raw(f"<span title='{moment.astimezone(UTC).isoformat(timespec='seconds')}'>{overview.age(moment)}</span>")


def _link(base: str, text: str, connector: str, batch: int | None = None) -> str:
    path = f"{base}/connectors/{quote(connector, safe='')}" + ("" if batch is None else f"/batches/{batch}")
    return Raw(f'<a href="{escape(path)}">{escape(text)}</a>')


def _cell(value: Any) -> str:
    if isinstance(value, Raw):
        return f"<td>{value}</td>"
    if isinstance(value, int):
        return f"<td class=n>{value:,}</td>"
    return f"<td>{escape(str(value))}</td>"


def _table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    titles = "".join(f"<th>{escape(h)}</th>" for h in head)
    lines = "\n".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    return Raw(f"<table>\n<tr>{titles}</tr>\n{lines}\n</table>")


def _facts(facts: Iterable[tuple[str, str]]) -> str:
    lines = (f"<dt>{escape(k)}</dt><dd>{v if isinstance(v, Raw) else escape(v)}</dd>" for k, v in facts)
    return Raw(f"<dl>{''.join(lines)}</dl>")


def _page(base: str, title: str, parts: Iterable[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n"
        f'<a href="{escape(base)}/">CDC connectors</a>\n<h1>{escape(title)}</h1>\n{body}\n</body></html>\n'
    )
