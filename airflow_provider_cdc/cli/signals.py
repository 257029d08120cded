"""Commands that send signals and show their states: ``signal``, ``snapshot``, ``signals``, ``notifications``."""

from __future__ import annotations

import argparse
import json
import time
import uuid
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.cli.command_support import (
    POLL_S,
    cli_command,
    find_current_user,
    open_store,
    print_json,
    print_table,
)
from airflow_provider_cdc.core.errors import CdcError, ConfigError
from airflow_provider_cdc.services.connectors.connector_handle import find_connector
from airflow_provider_cdc.services.text.pause_gap_signal_texts import progress_text, why_idle

if TYPE_CHECKING:
    from airflow_provider_cdc.core.spi.state_records import NotificationRecord
    from airflow_provider_cdc.state.state_store import StateStore


@cli_command
def send_signal(args: argparse.Namespace) -> None:
    """Send a signal."""
    _send(args, args.type, _data(args.data))


@cli_command
def request_snapshot(args: argparse.Namespace) -> None:
    """Send ``execute-snapshot``."""
    type_ = args.type or ("blocking" if args.on_spark else "incremental")
    data: dict[str, Any] = {"type": type_, "data-collections": args.table}
    if args.filter:
        data["additional-conditions"] = [_condition(text) for text in args.filter]
    if args.surrogate_key:
        data["surrogate-key"] = args.surrogate_key
    if args.chunk_size is not None:
        data["chunk-size"] = args.chunk_size
    if args.replace:
        data["replace"] = True
    if args.on_spark:
        data["engine"] = "spark"
    _send(args, "execute-snapshot", json.dumps(data))


def _condition(text: str) -> dict[str, str]:
    table, equals, condition = text.partition("=")
    if not equals or not table.strip() or not condition.strip():
        raise ConfigError(f"--filter {text!r} is not of the form TABLE=SQL.", remedy="--filter 'shop.orders=id > 1000'")
    return {"data-collection": table.strip(), "filter": condition.strip()}


def _data(text: str | None) -> str | None:
    if text is None or not text.startswith("@"):
        return text
    try:
        with open(text[1:], encoding="utf-8") as f:
            return f.read()
    except (OSError, ValueError) as e:
        raise ConfigError(f"--data {text}: the file cannot be read: {e}", safe="Nothing was sent.") from None


def _send(args: argparse.Namespace, type_: str, data: str | None) -> None:
    from airflow_provider_cdc.core.model.connector_signal import SentSignal, Signal
    from airflow_provider_cdc.core.signals.signal_request_parser import SignalRejected, parse_request

    id_ = args.id or str(uuid.uuid4())
    try:
        parse_request(Signal(0, id_, type_, data))
    except SignalRejected as e:
        raise ConfigError(f"The signal would be rejected: {e}.", safe="Nothing was sent.") from None
    with open_store(args) as store:
        find_connector(store, args.connector)
        number = store.send(args.connector, SentSignal(id_, type_, data, "airflow", None, find_current_user()))
        print(f"Signal {number} ({type_}, id {id_}) was sent to {args.connector}.", flush=True)
        if args.wait:
            _wait(store, args.connector, number)


def _wait(store: StateStore, connector: str, number: int) -> None:
    """Print a line whenever something has changed, until the state is final; exit status 1 unless it is ``done``."""
    from airflow_provider_cdc.core.model.connector_signal import SignalState

    shown = ""
    while True:
        rows = store.signals_of(connector, 1, number=number)
        if not rows:
            raise CdcError(f"Signal {number} no longer exists: connector {connector} was deleted.")
        row = rows[0]
        line = ": ".join(filter(None, (row.state, row.message, progress_text(row.progress))))
        if row.state.is_final:
            print(line)
            if row.state is not SignalState.DONE:
                raise SystemExit(1)
            return
        why = why_idle(store.find_connector(connector), connector)
        line += f" ({why})" if why else ""
        if line != shown:
            print(line, flush=True)
            shown = line
        time.sleep(POLL_S)


@cli_command
def list_signals(args: argparse.Namespace) -> None:
    """Signals and their states, newest first."""
    with open_store(args) as store:
        find_connector(store, args.connector)
        rows = store.signals_of(args.connector, args.limit, number=args.number)
    if args.output == "json":
        print_json([row.to_document() for row in rows])
        return
    print_table(
        ("number", "id", "type", "channel", "by", "received", "state", "ended", "message"),
        [
            (
                row.number, row.id, row.type, row.channel, row.sent_by or "",
                row.received_at.isoformat(timespec="seconds"), row.state,
                row.ended_at.isoformat(timespec="seconds") if row.ended_at else "",
                row.message or ("" if row.ended_at else progress_text(row.progress)),
            )
            for row in rows
        ],
        f"No signal was sent to {args.connector}.",
    )  # fmt: skip


@cli_command
def list_notifications(args: argparse.Namespace) -> None:
    """Notifications of a connector, oldest first."""
    with open_store(args) as store:
        find_connector(store, args.connector)
        rows = store.list_notifications(args.connector, limit=args.limit)
        if not rows and not args.follow and args.output != "json":
            print(f"Connector {args.connector} has sent no notification yet.")
        after = 0
        while True:
            for row in rows:
                print(_notification(row, args.output), flush=True)
                after = row.number
            if not args.follow:
                return
            if not rows:
                time.sleep(POLL_S)
            rows = store.list_notifications(args.connector, after=after, limit=1000)


def _notification(row: NotificationRecord, output: str) -> str:
    if output == "json":
        return json.dumps(row.to_document())
    return f"{row.created_at.isoformat(timespec='seconds')}  {row.notification}"
