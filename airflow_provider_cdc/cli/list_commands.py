"""Commands that list connectors, offsets and batches."""

from __future__ import annotations

import argparse

from airflow_provider_cdc.cli.command_support import cli_command, open_store, print_json, print_table
from airflow_provider_cdc.services.connectors.connector_handle import find_connector
from airflow_provider_cdc.services.dashboards.connector_overview import load_overview
from airflow_provider_cdc.services.text import status_texts


@cli_command
def list_connectors(args: argparse.Namespace) -> None:
    """List the connectors, one line for each."""
    with open_store(args) as store:
        if args.output == "json":
            print_json([line.model_dump(mode="json") for line in load_overview(store)])
            return
        rows = store.list_connectors()
    print_table(
        ("connector", "source", "state", "batch", "seq", "offset moved", "pending tables", "captured by", "change log"),
        [
            (
                s["connector"], s["source"] or "", s["state"], s["batch"], f"{s['seq']:,}", status_texts.format_age(row.moved_at),
                len(s["pending_tables"]) or "", s["captured_by"] or "", s["changelog"] or "",
            )
            for row in rows
            for s in [status_texts.summarize_connector(row)]
        ],
        "No connector has run yet.",
    )  # fmt: skip


@cli_command
def list_offsets(args: argparse.Namespace) -> None:
    """Offsets in full."""
    with open_store(args) as store:
        rows = [find_connector(store, args.connector)] if args.connector else store.list_connectors()
    if args.output == "json":
        print_json([{"connector": r.connector, **(r.offset.to_document() if r.offset else {})} for r in rows])
        return
    print_table(
        ("connector", "position", "seq", "batch", "offset moved", "pending tables"),
        [
            (
                s["connector"], status_texts.position_text(s["position"]), f"{s['seq']:,}", s["batch"],
                status_texts.format_age(row.moved_at), ", ".join(s["pending_tables"]),
            )
            for row in rows
            for s in [status_texts.summarize_connector(row)]
        ],
        "No connector has run yet.",
    )  # fmt: skip


@cli_command
def list_batches(args: argparse.Namespace) -> None:
    """Batches, newest first."""
    with open_store(args) as store:
        find_connector(store, args.connector)
        rows = store.list_batches(args.connector, limit=args.limit)
    if args.output == "json":
        print_json([row.to_document() for row in rows])
        return
    print_table(
        ("batch", "committed", "events", "bytes", "seq", "topics", "position"),
        [
            (
                row.batch, row.created_at.isoformat(timespec="seconds"), f"{row.events:,}", f"{row.bytes:,}",
                f"{row.first_seq:,} to {row.last_seq:,}", len(row.topics), status_texts.position_text(row.position),
            )
            for row in rows
        ],
        f"Connector {args.connector} has no batch yet.",
    )  # fmt: skip
