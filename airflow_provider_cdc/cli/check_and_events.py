"""The commands ``check`` and ``events``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.cli.command_support import POLL_S, command, open_store, print_json
from airflow_provider_cdc.connector import event_form
from airflow_provider_cdc.core.errors import CdcError, ConfigError
from airflow_provider_cdc.hooks.source import CdcSourceHook
from airflow_provider_cdc.services.connectors.connector_access import (
    ConnectorAccess,
    access_of,
    find_connector,
    storage_options,
)
from airflow_provider_cdc.services.connectors.source_probe import Readiness, reached, readiness

if TYPE_CHECKING:
    from airflow_provider_cdc.changelog.debezium.renderer import Renderer
    from airflow_provider_cdc.changelog.files.change_log import ChangeLog


@command
def check(args: argparse.Namespace) -> None:
    """Check the source's prerequisites, and show the connector's position in its log."""
    access: ConnectorAccess | None = None
    if args.connector is not None and args.conn_id is None:
        with open_store(args) as store:
            record = find_connector(store, args.connector)
        access = None if record.registration is None else reached(record, args.state_conn_id)
    if access is None and args.conn_id is None:
        raise ConfigError(
            "Name a connector or a connection to check.",
            remedy="give the name of a connector that has run, which `airflow cdc connectors` lists, or --conn-id and the connection to a database",
        )
    found = Readiness(CdcSourceHook(args.conn_id, source=args.source).check()) if access is None else readiness(access)
    if args.output == "json":
        findings = [{"what": f.what, "fix": f.fix, "fatal": f.fatal} for f in found.findings]
        where = {} if found.position is None else {"position": found.position, "waiting": found.waiting}
        print_json({"ready": found.ready, "findings": findings, **where})
    else:
        for line in _check_lines(found):
            print(line)
    if not found.ready:
        raise SystemExit(1)


def _check_lines(found: Readiness) -> Iterator[str]:
    yield "Ready for capture." if found.ready else "Not ready for capture."
    for f in found.findings:
        yield f"  {'✗' if f.fatal else '!'} {f.what}"
        yield f"    {f.fix}"
    if found.position is not None:
        yield f"The log ends at {found.position}."
        yield f"Something is to be captured: {found.waiting}." if found.waiting else "Everything is captured."


@command
def events(args: argparse.Namespace) -> None:
    """The change log as Debezium JSON."""
    import orjson

    changelog, source = _changelog(args)
    renderer = _renderer(args, changelog, source) if source else None
    topics = set(args.topic or ())
    left = args.limit
    out = sys.stdout.buffer
    for manifest in _manifests(changelog, args.connector, args.from_batch, follow=args.follow):
        renderer = renderer or _renderer(args, changelog, manifest.source)
        for record in renderer.batch(manifest):
            if topics and record.topic not in topics:
                continue
            if left is not None and left <= 0:
                return
            out.write(orjson.dumps(record.document(schemas=args.schemas)) + b"\n")
            left = None if left is None else left - 1
        out.flush()
        if left is not None and left <= 0:
            return


def _renderer(args: argparse.Namespace, changelog: ChangeLog, source: str) -> Renderer:
    """:param source: kind of source, which has the requested form"""
    from airflow_provider_cdc.changelog.debezium.renderer import Renderer

    return Renderer(changelog, args.connector, schemas=args.schemas, form=event_form(source, args.form))


def _manifests(changelog: ChangeLog, connector: str, first: int | None, *, follow: bool) -> Iterator[Any]:
    after = max(changelog.first(connector) - 1, 0) if first is None else first - 1
    while True:
        for manifest in changelog.manifests(connector, after=after):
            after = manifest.batch
            yield manifest
        if not follow:
            return
        time.sleep(POLL_S)


def _changelog(args: argparse.Namespace) -> tuple[ChangeLog, str | None]:
    """The change log, of ``--changelog`` or of the connector's last run, and the kind of source where that is known before a batch is read."""
    from airflow_provider_cdc.changelog.files.change_log import ChangeLog

    if args.changelog:
        changelog = ChangeLog(args.changelog, storage_options(args.storage_conn_id))
        if not args.follow and args.connector not in (names := changelog.connectors()):
            raise CdcError(
                f"The change log holds no connector {args.connector!r}.",
                where=f"{args.changelog}: {', '.join(names) or 'empty'}",
            )
        return changelog, None
    with open_store(args) as store:
        access = access_of(find_connector(store, args.connector), args.state_conn_id)
    if access is None:
        raise CdcError(
            f"It is not recorded where the change log of {args.connector} is.",
            remedy="say where it is: --changelog and its folder or prefix",
        )
    return access.changelog(), access.definition.source
