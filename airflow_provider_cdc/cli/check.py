"""Commands that prepare the first run of a connector: ``check``, and ``import`` of a configuration of Debezium."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from airflow_provider_cdc.cli.command_support import cli_command, open_store, print_json
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.remedy_commands import name_cdc_command
from airflow_provider_cdc.hooks.source import CdcSourceHook
from airflow_provider_cdc.services.connectors.connector_handle import (
    ConnectorAccess,
    find_connector,
)
from airflow_provider_cdc.services.connectors.source_readiness import (
    Readiness,
    check_readiness,
    inspect_readiness,
    resolve_access,
)
from airflow_provider_cdc.services.debezium_import import SINK, ImportedConnector, ImportOptions, import_connector
from airflow_provider_cdc.sources.grant_names import GrantNames
from airflow_provider_cdc.sources.grants import read_grants


@cli_command
def check_source(args: argparse.Namespace) -> None:
    """Check the source's prerequisites, and show the connector's position in its log."""
    access: ConnectorAccess | None = None
    if args.connector is not None and args.conn_id is None:
        with open_store(args) as store:
            record = find_connector(store, args.connector)
        access = None if record.registration is None else resolve_access(record, args.state_conn_id)
    if access is None and args.conn_id is None:
        raise ConfigError(
            "Name a connector or a connection to check.",
            remedy=f"give the name of a connector that `{name_cdc_command('connectors')}` lists, or --conn-id with a connection to a database",
        )
    if access is None:
        with CdcSourceHook(args.conn_id, source=args.source).open_source() as source:
            readiness = inspect_readiness(source)
    else:
        readiness = check_readiness(access)
    if args.output == "json":
        findings = [{"problem": f.problem, "fix": f.fix, "fatal": f.fatal} for f in readiness.findings]
        where = {} if readiness.position is None else {"position": readiness.position, "waiting": readiness.waiting}
        kept = readiness.log_retention
        retention = {} if kept is None else {"log_retention": {"seconds": kept.seconds, "setting": kept.setting}}
        print_json({"ready": readiness.is_ready, "findings": findings, **retention, **where})
    else:
        for line in _check_lines(readiness):
            print(line)
    if not readiness.is_ready:
        raise SystemExit(1)


@cli_command
def print_grants(args: argparse.Namespace) -> None:
    """Print the statements that set up the account of a capture."""
    names = GrantNames(args.account, args.database or (), args.table or ())
    print(names.replace_names(args.source, read_grants(args.source, args.section)).rstrip())


def _check_lines(readiness: Readiness) -> Iterator[str]:
    yield "Ready for capture." if readiness.is_ready else "Not ready for capture."
    for f in readiness.findings:
        yield f"  {'✗' if f.fatal else '!'} {f.problem}"
        yield f"    {f.fix}"
    if readiness.log_retention is not None:
        yield readiness.log_retention.format_text()
    if readiness.position is not None:
        yield f"The log ends at {readiness.position}."
        yield f"Pending work: {readiness.waiting}." if readiness.waiting else "All changes are captured."


@cli_command
def import_definition(args: argparse.Namespace) -> None:
    """Print or write the definition, and a line for each property."""
    options = ImportOptions(args.source, args.conn_id, args.changelog, args.target, args.location, args.form)
    imported = import_connector(_read(args.file), options)
    if args.write is None:
        print(imported.definition, end="")
    else:
        _write(args.write, imported.definition)
    print(describe_import(imported), file=sys.stderr)
    if imported.refused:
        raise SystemExit(1)


def describe_import(imported: ImportedConnector) -> str:
    """Describe what became of each property, and what is left to do."""
    width = max(len(line.name) for line in imported.properties)
    lines = [f"{imported.name} ({imported.source}):"]
    lines += [f"  {line.name:{width}}  {line.outcome:10}  {line.note}".rstrip() for line in imported.properties]
    if imported.source == SINK:
        lines.append("Add these lines to the definition of the connector whose events are written.")
    if imported.connection:
        lines += ["Connection:", f"  {imported.connection}"]
    if imported.secrets:
        lines.append(f"Secrets, to enter in the connection: {', '.join(imported.secrets)}")
    lines += [f"To fill in: {value}" for value in imported.lacks]
    if count := len(imported.refused):
        lines.append(f"{count} propert{'y has' if count == 1 else 'ies have'} an effect that is missing here.")
    return "\n".join(lines)


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text()
    except OSError as e:
        raise ConfigError(
            f"{file} cannot be read: {e.strerror}.", safe="Nothing was written.", remedy="name another file"
        ) from e
    except UnicodeDecodeError as e:
        raise ConfigError(f"{file} is no text.", safe="Nothing was written.", remedy="name another file") from e


def _write(file: str, text: str) -> None:
    try:
        with Path(file).open("x") as output:
            output.write(text)
    except OSError as e:
        raise ConfigError(
            f"{file} cannot be written: {e.strerror}.", safe="No existing file was changed.", remedy="name another file"
        ) from e
