"""The command ``events``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.cli.command_support import POLL_S, cli_command, open_store
from airflow_provider_cdc.connector import event_form
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.services.connectors.connector_handle import (
    access_of,
    find_connector,
    storage_options,
)

if TYPE_CHECKING:
    from airflow_provider_cdc.changelog.debezium.record_renderer import DebeziumRenderer
    from airflow_provider_cdc.changelog.files.change_log import ChangeLog


@cli_command
def export_events(args: argparse.Namespace) -> None:
    """Print the change log as Debezium JSON."""
    import orjson

    changelog, source = _changelog(args)
    renderer = _renderer(args, changelog, source) if source else None
    topics = set(args.topic or ())
    left = args.limit
    out = sys.stdout.buffer
    for manifest in _manifests(changelog, args.connector, args.from_batch, follow=args.follow):
        renderer = renderer or _renderer(args, changelog, manifest.source)
        for record in renderer.render_batch(manifest):
            if topics and record.topic not in topics:
                continue
            if left is not None and left <= 0:
                return
            out.write(orjson.dumps(record.to_document(schemas=args.schemas)) + b"\n")
            left = None if left is None else left - 1
        out.flush()
        if left is not None and left <= 0:
            return


def _renderer(args: argparse.Namespace, changelog: ChangeLog, source: str) -> DebeziumRenderer:
    """:param source: kind of source, which has the requested form"""
    from airflow_provider_cdc.changelog.debezium.record_renderer import DebeziumRenderer

    return DebeziumRenderer(changelog, args.connector, schemas=args.schemas, form=event_form(source, args.form))


def _manifests(changelog: ChangeLog, connector: str, first: int | None, *, follow: bool) -> Iterator[Any]:
    after = max(changelog.find_first_batch(connector) - 1, 0) if first is None else first - 1
    while True:
        for manifest in changelog.read_manifests(connector, after=after):
            after = manifest.batch
            yield manifest
        if not follow:
            return
        time.sleep(POLL_S)


def _changelog(args: argparse.Namespace) -> tuple[ChangeLog, str | None]:
    """Open the change log of ``--changelog`` or of the connector's last run.

    The kind of source is returned too, where it is known before a batch is read.
    """
    from airflow_provider_cdc.changelog.files.change_log import ChangeLog

    if args.changelog:
        changelog = ChangeLog(args.changelog, storage_options(args.storage_conn_id))
        if not args.follow and args.connector not in (names := changelog.list_connectors()):
            raise CdcError(
                f"The change log holds no connector {args.connector!r}.",
                where=f"{args.changelog}: {', '.join(names) or 'empty'}",
            )
        return changelog, None
    with open_store(args) as store:
        access = access_of(find_connector(store, args.connector), args.state_conn_id)
    if access is None:
        raise CdcError(
            f"The location of the change log of {args.connector} is not recorded.",
            remedy="give its folder or prefix with --changelog",
        )
    return access.open_change_log(), access.definition.source
