"""The checker: walks every event of every key of a change log and objects to each step that cannot have happened.

Beside :class:`~tests.support.change_log.replay.Replay`, which knows tables that are captured from their beginning, this one knows rows that come
while the log is read: those of incremental snapshots. Of each key it knows one of three things: nothing yet, a row, or that it
is gone.

* A create meets a key that has no row.
* An update and a delete meet the row that their ``before`` says, where they have one.
* A read of an incremental snapshot reads a key of which nothing is known, or says what is in force once more. If it says something
  else, it is older than an event that is before it in the log (a *stale read*); if the key is gone, it brings a deleted row back.
* Sequence numbers have no hole, and at the end the keys have the rows that the table has.

Values that an event leaves out (``unavailable``) stay as they were; of a key of which nothing is known they are not known either.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.core.capture.unlogged_rewrite_check import rewrite_reason
from airflow_provider_cdc.core.model.batch_manifest import Manifest, SchemaChangeRecord
from airflow_provider_cdc.core.model.table_schema import TableChange, TableSchema
from tests.support.change_log.replay import IllegalEvent, _alter, _items

Row = dict[str, Any]
Key = tuple[Any, ...]
EXAMPLES: Final = 5


class _NotKnown(enum.Enum):
    NOT_KNOWN = "?"

    def __repr__(self) -> str:
        return "?"


NOT_KNOWN = _NotKnown.NOT_KNOWN
"""In the place of a value that the change log does not have."""


@dataclass(slots=True)
class Known:
    """The log's content for a key so far.

    :param row: ``None`` = it is gone
    :param seq: and ``op``: of the event that said so
    :param streamed: whether an event of the stream is among those that did
    """

    row: Row | None
    seq: int
    op: str
    streamed: bool

    def __str__(self) -> str:
        return f"{'gone' if self.row is None else self.row} (seq {self.seq}, {self.op})"


@dataclass
class Keys:
    """The keys of a table.

    :ivar emptied: ``seq`` of the last truncate: unknown keys were gone then
    """

    schema: TableSchema
    known: dict[Key, Known] = field(default_factory=dict)
    emptied: int | None = None


class Checker:
    """Takes events in the order of the log; raises :class:`IllegalEvent` at the first one that cannot be.

    :param whole: topics of tables whose changes are all in the log, from when they had no row: nothing of them can be read
        before it was streamed or read by the initial snapshot
    :param replaced: topics of tables that the connector itself empties before it reads them (``"replace": true``): rows that
        are read then are news of keys that were gone
    """

    def __init__(self, *, whole: Collection[str] = (), replaced: Collection[str] = ()) -> None:
        self._whole, self._replaced = set(whole), set(replaced)
        self.tables: dict[str, Keys] = {}
        self.seq = 0
        self.counts: Counter[str] = Counter()
        """``c``, ``u`` … by operation; ``read`` by incremental snapshots, of these ``repeated`` what was in force."""
        self._moved: dict[str, tuple[int, Row]] = {}

    # -- a whole change log -------------------------------------------------------------------------------------------

    def walk(self, changelog: ChangeLog, connector: str, after: int = 0) -> Checker:
        """Every event of every batch behind one. Tables without a key are passed over, and counted as ``without key``.

        :raises Illegal: at the first step that cannot be
        """
        for manifest in changelog.read_manifests(connector, after=after):
            for seq, item in _items(changelog, manifest):
                self._number(seq, f"in batch {manifest.batch}")
                if isinstance(item, SchemaChangeRecord):
                    self._rename(item, manifest)
                    for change in item.changes:
                        self._change(change, item, manifest)
                else:
                    topic = str(item["topic"])
                    schema = manifest.schemas[topic][str(item["schema_version"])]
                    if schema.key:
                        self.event(item, schema)
                    else:
                        self.counts["without key"] += 1
            if self.seq != manifest.last_seq:
                raise IllegalEvent(f"batch {manifest.batch} ends at {self.seq}, its manifest says {manifest.last_seq}")
        return self

    def _number(self, seq: int, where: str = "") -> None:
        if seq != self.seq + 1:
            raise IllegalEvent(f"seq {seq} follows {self.seq} {where}".rstrip())
        self.seq = seq

    # -- one step -----------------------------------------------------------------------------------------------------

    def event(self, event: Mapping[str, Any], schema: TableSchema) -> None:
        """Check an event, in the form of a row of the change log's files, with its ``topic``."""
        topic, op = str(event["topic"]), str(event["op"])
        keys = self.tables.setdefault(topic, Keys(schema))
        keys.schema = schema
        self.counts[op] += 1
        if not schema.key:
            raise IllegalEvent(f"{topic} has no key: it cannot be checked")
        if op == "t":
            self._emptied(topic, keys, int(event["seq"]))
            return
        key = tuple(event["key"][name] for name in schema.key)
        known = keys.known.get(key)
        if known is None and (topic in self._whole or keys.emptied is not None):
            known = Known(None, keys.emptied or 0, "t" if keys.emptied is not None else "never inserted", streamed=True)
        step = {"c": self._create, "r": self._read, "u": self._update, "d": self._delete}.get(op)
        if step is None:
            raise IllegalEvent(f"{topic} {key}: {op!r} at seq {event['seq']} is no operation")
        row = step(event, key, known)
        streamed = op != "r" or (known is not None and known.streamed)
        keys.known[key] = Known(row, int(event["seq"]), op, streamed)

    def _emptied(self, topic: str, keys: Keys, seq: int) -> None:
        if topic in self._replaced:
            keys.known.clear()
            keys.emptied = None
            self._whole.discard(topic)
            return
        keys.emptied = seq
        keys.known = {key: Known(None, seq, "t", streamed=True) for key in keys.known}

    def _create(self, event: Mapping[str, Any], key: Key, known: Known | None) -> Row:
        if known is not None and known.row is not None:
            raise _illegal_event(event, key, known, "a create of a row that is there")
        return self._after(event, known)

    def _read(self, event: Mapping[str, Any], key: Key, known: Known | None) -> Row:
        incremental = event["source"]["snapshot"] == "incremental"
        self.counts["read"] += incremental
        if known is None:
            return self._after(event, None)
        if known.row is None:
            if incremental or known.op not in ("t", "never inserted"):
                raise _illegal_event(event, key, known, "a read brings back a row that is gone")
            return self._after(event, None)
        row = self._after(event, known)
        if not _rows_agree(row, known.row):
            why = "a stale read: an event before it says otherwise" if known.streamed else "two reads that differ"
            raise _illegal_event(event, key, known, why)
        self.counts["repeated"] += incremental
        return {name: row[name] if known.row.get(name) is NOT_KNOWN else known.row.get(name, row[name]) for name in row}

    def _update(self, event: Mapping[str, Any], key: Key, known: Known | None) -> Row:
        self._met(event, key, known, event.get("unavailable_before") or [])
        return self._after(event, known)

    def _delete(self, event: Mapping[str, Any], key: Key, known: Known | None) -> None:
        self._met(event, key, known, event.get("unavailable") or [])
        if known is not None and known.row is not None:
            self._moved[str(event["topic"])] = int(event["seq"]), known.row

    def _met(self, event: Mapping[str, Any], key: Key, known: Known | None, lacking: Collection[str]) -> None:
        """An update or a delete meets the row that it says it does."""
        if known is None:
            return
        what = "an update" if event["op"] == "u" else "a delete"
        if known.row is None:
            raise _illegal_event(event, key, known, f"{what} of a row that is not there")
        before = event["before"]
        if before is not None and not _rows_agree({n: v for n, v in before.items() if n not in lacking}, known.row):
            raise _illegal_event(
                event, key, known, f"{what} whose before is another row: an event is missing, or was repeated"
            )

    def _after(self, event: Mapping[str, Any], known: Known | None) -> Row:
        """The row after an event, with what it leaves out taken from the row before."""
        after, lacking = event["after"], event.get("unavailable") or []
        if after is None:
            raise IllegalEvent(f"{event['topic']}: {event['op']} at seq {event['seq']} has no after")
        if names := [name for name in lacking if after.get(name) is not None]:
            raise IllegalEvent(
                f"{event['topic']}: seq {event['seq']} has values of {names}, which it says it leaves out"
            )
        earlier = known.row if known is not None else None
        if earlier is None and event.get("previous_key") is not None:
            seq, row = self._moved.get(str(event["topic"]), (0, {}))
            earlier = row if seq == event["seq"] - 1 else None
        elif earlier is None and event["op"] == "c":
            earlier = dict.fromkeys(lacking)
        return dict(after) | {name: (earlier or {}).get(name, NOT_KNOWN) for name in lacking}

    def _rename(self, record: SchemaChangeRecord, manifest: Manifest) -> None:
        """Keys go with their tables, all at once: names may be swapped."""
        prefix = manifest.config.get("topic.prefix", manifest.connector)
        renamed = [(c.previous_id, c.id) for c in record.changes if c.previous_id not in (None, c.id)]
        moved = [self.tables.pop(f"{prefix}.{old}", None) for old, _ in renamed]
        for (_, new), keys in zip(renamed, moved, strict=True):
            self.tables.pop(f"{prefix}.{new}", None)
            if keys is not None and f"{prefix}.{new}" in manifest.schemas:
                self.tables[f"{prefix}.{new}"] = keys

    def _change(self, change: TableChange, record: SchemaChangeRecord, manifest: Manifest) -> None:
        """Apply a schema change to the known rows; forget them if it may have rewritten their values."""
        topic = next((t for t in manifest.schemas if t.endswith(f".{change.id}")), None)
        keys = self.tables.get(topic or "")
        if topic is None or keys is None or change.table is None:
            return  # a dropped table that comes again begins with a truncate
        old, keys.schema = keys.schema, manifest.schemas[topic][str(change.table.version)]
        renamed = change.previous_id not in (None, change.id)
        text = change.model_copy(update={"exact": change.exact or renamed})
        if not record.snapshot and rewrite_reason(old, text):
            keys.known.clear()
            keys.emptied = None
            self._whole.discard(topic)
        for known in keys.known.values():
            if known.row is not None:
                _alter(known.row, old, keys.schema, change)

    # -- the end ------------------------------------------------------------------------------------------------------

    def rows(self, topic: str) -> list[Row]:
        """The rows that are in force, in the order of their values."""
        keys = self.tables.get(topic)
        return sorted((k.row for k in keys.known.values() if k.row is not None), key=repr) if keys is not None else []

    def finish(self, topic: str, expected: Iterable[Mapping[str, Any]], key: Collection[str] = ()) -> None:
        """Compare with the rows that the table has.

        :param expected: rows with the columns of the change log
        :param key: names of the key columns; by default those of the last schema
        :raises Illegal: they are others; names each kind of difference with examples
        """
        keys = self.tables.get(topic)
        names = tuple(key) or (keys.schema.key if keys is not None else ())
        wanted = {tuple(row[name] for name in names): dict(row) for row in expected}
        known = keys.known if keys is not None else {}
        there = {k: v for k, v in known.items() if v.row is not None}
        problems = [
            *_examples("not in the log", [f"{k}: {row}; log: {known.get(k, 'nothing')}" for k, row in wanted.items() if k not in there]),
            *_examples("in the log only", [f"{k}: {v}" for k, v in there.items() if k not in wanted]),
            *_examples(
                "otherwise in the log",
                [f"{k}: {wanted[k]}; log: {v}" for k, v in there.items() if k in wanted and not _equal(wanted[k], v.row)],
            ),
        ]  # fmt: skip
        if problems:
            raise IllegalEvent(f"{topic} is not as the table is:\n  " + "\n  ".join(problems))


def check(
    changelog: ChangeLog, connector: str, expected: Mapping[str, Iterable[Mapping[str, Any]]], **options: Any
) -> Checker:
    """Walk a whole change log, and compare its end with the rows of tables, by topic."""
    checker = Checker(**options).walk(changelog, connector)
    for topic, rows in expected.items():
        checker.finish(topic, rows)
    return checker


def _rows_agree(told: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Check whether two rows agree in everything that both tell."""
    return all(
        value is NOT_KNOWN or known.get(name, NOT_KNOWN) is NOT_KNOWN or _value(value) == _value(known[name])
        for name, value in told.items()
    )


def _equal(row: Mapping[str, Any], known: Mapping[str, Any] | None) -> bool:
    """Check whether they are one row; a value that is not known is not that of the row."""
    return (
        known is not None and row.keys() == known.keys() and all(_value(v) == _value(known[n]) for n, v in row.items())
    )


def _value(value: Any) -> Any:
    """NaN equals NaN; no number equals a truth value."""
    return repr(value) if isinstance(value, float | bool) else value


def _illegal_event(event: Mapping[str, Any], key: Key, known: Known, why: str) -> IllegalEvent:
    reported = {"before": event["before"], "after": event["after"]}
    shown = ", ".join(f"{name} {row}" for name, row in reported.items() if row is not None)
    return IllegalEvent(
        f"{event['topic']} {key}: {event['op']} at seq {event['seq']}: {why}.\n  in force: {known}\n  event:    {shown}"
    )


def _examples(what: str, found: list[str]) -> list[str]:
    more = f"\n    and {len(found) - EXAMPLES:,} more" if len(found) > EXAMPLES else ""
    return [f"{len(found):,} rows {what}:\n    " + "\n    ".join(found[:EXAMPLES]) + more] if found else []
