"""The parts of a connector's page that change: its state, its signals, and notifications."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

from airflow_provider_cdc.core.lifecycle.status import RunState, state_of, status_of
from airflow_provider_cdc.core.model.signal import SignalState
from airflow_provider_cdc.core.model.work import Work
from airflow_provider_cdc.core.spi.records import ConnectorRecord, NotificationRecord, SignalRecord
from airflow_provider_cdc.hooks.signal_texts import fraction, halted, progress_text
from airflow_provider_cdc.plugins.html import Raw, ago, link, table

_CLASS = {
    RunState.RUNNING: "good",
    RunState.FAILED: "bad",
    SignalState.DONE: "good",
    SignalState.REFUSED: "bad",
    SignalState.FAILED: "bad",
}
_ABOUT = {
    RunState.UNASSIGNED: "no run is alive; the next one goes on",
    RunState.RUNNING: "",
    RunState.FAILED: "the last run ended with an error",
}


def state(row: ConnectorRecord) -> str:
    """The state of a connector in a word."""
    found, _ = state_of(row)
    return _coloured(found)


def state_facts(row: ConnectorRecord) -> list[tuple[str, str]]:
    """The state, since when and by whom, and the last error."""
    status = status_of(row, ())
    about = halted(row.control) or _ABOUT.get(status.state, "")
    since = f" since {ago(status.since)}" if status.since else ""
    facts: list[tuple[str, str]] = [
        ("state", Raw(f"{_coloured(status.state)}{since}{f': {escape(about)}' if about else ''}"))
    ]
    if status.last_error and status.state is not RunState.RUNNING:
        colour = "bad" if status.state is RunState.FAILED else "quiet"
        text = f"{ago(status.last_error_at)}<pre class={colour}>{escape(status.last_error)}</pre>"
        facts.append(("last error", Raw(text)))
    return facts


def holder(row: ConnectorRecord) -> str:
    """The run that captures a connector now."""
    if row.owner is None:
        return Raw("<span class=quiet>nobody now</span>")
    return f"{row.owner} (lease ends in {row.lease_s:.0f} s unless renewed)"


def moving(rows: Sequence[SignalRecord]) -> bool:
    """Whether the state of some signal is not final."""
    return any(not row.state.final for row in rows)


def works(rows: Sequence[Work]) -> list[str]:
    """What is at work now, and how far it is."""
    if not rows:
        return []
    lines = []
    for work in rows:
        bar = "" if work.part is None else f"<progress max=1 value={work.part:.3f}></progress> "
        since = datetime.fromtimestamp(work.began_at, UTC)
        lines.append(
            (Raw(f"{bar}{escape(work.text)}"), work.where, ago(since), ago(datetime.fromtimestamp(work.at, UTC)))
        )
    return [Raw("<h2>At work</h2>"), table(("", "where", "began", "as of"), lines)]


def signals(rows: Sequence[SignalRecord]) -> list[str]:
    """Signals with their states."""
    if not rows:
        return []
    lines = []
    for row in rows:
        by = f", {escape(row.sent_by)}" if row.sent_by else ""
        lines.append(
            (
                row.number, row.type, Raw(f"<code>{escape(row.data or '')}</code>"),
                Raw(f"{ago(row.received_at)}, {escape(row.channel)}{by}"), _coloured(row.state), _progress(row), row.message,
            )
        )  # fmt: skip
    return [
        Raw("<h2>Signals</h2>"),
        table(("number", "type", "data", "sent", "state", "progress", ""), lines),
    ]


def notifications(base: str, connector: str, rows: Sequence[NotificationRecord]) -> list[str]:
    """Notifications of the connector, newest first.

    :param rows: oldest first
    """
    if not rows:
        return []
    lines = []
    for row in reversed(rows):
        n, batch = row.notification, row.batch
        data = [f"{name}: {text}" for name, text in n.additional_data.items() if name != "connector_name" and text]
        page = link(base, str(batch), connector, batch) if batch else ""
        lines.append((_moment(row.created_at), n.aggregate_type, n.type, "; ".join(data), page))
    head = ("at", "about", "what", "details", "batch")
    return [Raw("<h2>Notifications</h2>"), table(head, lines)]


def _progress(row: SignalRecord) -> str:
    part = fraction(row.state, row.progress)
    text = "" if row.state is SignalState.DONE else escape(progress_text(row.progress))
    bar = "" if part is None else f"<progress max=1 value={part:.3f}></progress> "
    seconds = ""
    if row.running_at and row.ended_at:
        seconds = f" in {(row.ended_at - row.running_at).total_seconds():,.1f} s"
    return Raw(f"{bar}{text}{seconds}")


def _coloured(word: RunState | SignalState) -> str:
    return Raw(f"<span class={_CLASS.get(word, 'quiet')}>{word.value}</span>")


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
