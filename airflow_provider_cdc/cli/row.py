"""``airflow cdc row``: every change of one row, from the change log."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.cli.command_support import cli_command, find_current_user, open_store
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.pandas_import_guard import without_pandas
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.services.row_history.row_history_lookup import RowQuery, load_row_history

if TYPE_CHECKING:
    from airflow_provider_cdc.changelog.row_history.row_history_models import (
        CurrentTargetRow,
        RowChange,
        RowHistory,
        TargetOutcome,
    )

_PATIENCE_S = 3.0
"""Work that takes longer says how far it is."""
_SPOKEN_S = 2.0


@cli_command
def show_row_history(args: argparse.Namespace) -> None:
    """Show all changes of a row."""
    query = RowQuery(
        args.table, args.key, find_current_user(), args.connector or "", _time(args.as_of), args.compare, args.database_conn_id or (), args.timeout
    )  # fmt: skip
    without_pandas()
    with open_store(args) as store:
        story = load_row_history(store, query, _IndexProgress())
    if args.json or args.output == "json":
        print(story.model_dump_json(indent=2))
    else:
        print("\n".join(format_row_history(story)))
    if story.left_out:
        raise SystemExit(2)


def _time(text: str | None) -> datetime | None:
    """Parse a time.

    :raises ConfigError: it is no time
    """
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"--as-of is {text!r}, which is not a time.",
            safe="Nothing was shown.",
            remedy="for example 2026-03-01T12:00:00+00:00",
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


class _IndexProgress:
    """Says how far the index of keys is, where that takes long."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._next = self._began + _PATIENCE_S

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _SPOKEN_S
            left = (now - self._began) / done * (total - done)
            print(
                f"Index of keys: {done:,} of {total:,} batches, about {left:,.0f} s left", file=sys.stderr, flush=True
            )


def format_row_history(story: RowHistory) -> Iterator[str]:
    """Format the history of a row for people."""
    when = f" as of {story.as_of}" if story.as_of else ""
    yield f"{story.table} {_key(story.key)} ({story.connector}){when}: {_now(story)}"
    for change in story.changes:
        yield ""
        yield from _change(change)
    if not story.changes:
        yield "The change log has no change of this row."
    yield ""
    yield f"Batches {story.first_batch:,} to {story.last_batch:,} were searched."
    yield from story.notes
    for first, last in story.left_out:
        yield f"The timeout ended before batches {first:,} to {last:,} were searched: run the command again to continue from here, or run {format_cdc_command('maintain', story.connector, only='retention')}."
    yield from _elsewhere(story)


def _now(story: RowHistory) -> str:
    if story.row.state == "unknown":
        return "the retained change log does not show whether the row exists"
    if story.row.row is None:
        return "the row does not exist"
    lacking = dict.fromkeys(story.row.unavailable, "(not known)")
    return _values({**story.row.row, **lacking})


def _change(change: RowChange) -> Iterator[str]:
    key = "" if change.key is None else f" {_key(change.key)}"
    moved = f", previously {_key(change.previous_key)}" if change.previous_key else ""
    moved += f", later {_key(change.next_key)}" if change.next_key else ""
    snapshot = f" (snapshot: {change.snapshot})" if change.snapshot else ""
    again = change.operation == "truncate" and change.snapshot is not None
    operation = "emptied before a snapshot" if again else change.operation
    yield f"{change.committed_at}  {operation}{snapshot} {change.table}{key}{moved}"
    if change.statement:
        yield f"  {change.statement}"
    yield from _images(change)
    where = ", ".join(f"{name} {value}" for name, value in change.position.items())
    transaction = (
        ""
        if not change.transaction
        else f"; transaction {change.transaction['id']}, event {change.transaction['total_order']}"
    )
    yield f"  at {where or 'no position'}{transaction}; seq {change.seq:,}, batch {change.batch:,}"
    times = [f"captured {change.captured_at}"]
    times += [f"in the change log {change.batch_at}"] if change.batch_at else []
    times += [_applied(outcome) for outcome in change.applied]
    yield f"  {'; '.join(times)}"


def _images(change: RowChange) -> Iterator[str]:
    """Format the values before and after, side by side; ``*`` marks changes."""
    if change.before is None and change.after is None:
        return
    rows = [("", "column", "before", "after")]
    for name in change.columns:
        before = _image(change.before, name, change.unavailable_before)
        after = _image(change.after, name, change.unavailable)
        rows.append(("*" if name in change.changed else "", name, before, after))
    wide = [max(len(row[n]) for row in rows) for n in range(4)]
    for row_ in rows:
        yield "  " + "  ".join(text.ljust(width) for text, width in zip(row_, wide, strict=True)).rstrip()


def _image(image: dict[str, Any] | None, name: str, unavailable: list[str]) -> str:
    if image is None:
        return ""
    if name in unavailable:
        return "(not in the log)"
    return _value(image[name]) if name in image else "(left out)"


def _applied(outcome: TargetOutcome) -> str:
    where = f"{outcome.target} {outcome.location}"
    if outcome.state == "waits":
        return f"not yet in {where}"
    if outcome.state == "unknown" or outcome.at is None:
        return f"in {where}: not known"
    return f"in {where} {'by' if outcome.at_latest else 'at'} {outcome.at}"


def _elsewhere(story: RowHistory) -> Iterator[str]:
    yield from map(_target, story.targets)
    if (source := story.source) is not None:
        row_text = "the row does not exist" if source.row is None else _values(source.row)
        same = {True: "equal", False: "not equal", None: "cannot be compared"}[source.equal]
        which = f" ({', '.join(source.different)})" if source.different else ""
        yield f"The source at log position {source.position}: {row_text}: {same}{which}"


def _target(target: CurrentTargetRow) -> str:
    where = f"{target.target} {target.table or target.location}"
    where += "" if target.batch is None else f", batch {target.batch:,}"
    if target.state == "not looked at":
        return f"{where}: not read: {target.why}"
    held = "the row does not exist" if target.row is None else _values(target.row)
    several = "" if target.versions is None else f", {target.versions:,} rows with this key"
    deleted = ", deleted" if target.state == "deleted" else ""
    why = f" ({target.why})" if target.why else ""
    return f"{where}, mode {target.mode}{several}{deleted}: {held}{why}"


def _key(key: dict[str, Any]) -> str:
    return ", ".join(f"{name}={_value(value)}" for name, value in key.items())


def _values(row_: dict[str, Any]) -> str:
    return ", ".join(f"{name}={_value(value)}" for name, value in row_.items())


def _value(value: Any) -> str:
    """Format a value as JSON, so that a text cannot be taken for NULL or a number, nor move the cursor."""
    text = "NULL" if value is None else json.dumps(value, ensure_ascii=False)
    text = "".join(character if character.isprintable() else f"\\u{ord(character):04x}" for character in text)
    return text if len(text) <= 200 else f"{text[:200]}… ({len(text):,} characters)"
