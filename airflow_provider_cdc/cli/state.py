"""The commands ``state migrate`` and ``state copy``: a state database beside Airflow's metadata DB."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from airflow_provider_cdc.cli.command_support import cli_command
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID, CdcStateHook, StateAddress, translate_database_errors

if TYPE_CHECKING:
    from airflow_provider_cdc.state.state_database import StateDatabase


@cli_command
def migrate_state(args: argparse.Namespace) -> None:
    """Create or upgrade the state tables of a connection."""
    from airflow_provider_cdc.state.models import REVISION
    from airflow_provider_cdc.state.table_migration import migrate_tables

    with _open_database(CdcStateHook(args.conn_id).resolve_address()) as database:
        migrate_tables(database)
        database.check_tables()
        print(f"The state tables in {database.place} are at revision {REVISION}.")


@cli_command
def copy_connectors(args: argparse.Namespace) -> None:
    """Move the state of all connectors to another database."""
    from airflow_provider_cdc.state.state_copy import copy_state

    source, target = (CdcStateHook(conn_id).resolve_address() for conn_id in (args.from_conn_id, args.to_conn_id))
    if _place(source) == _place(target):
        raise ConfigError(
            f"Connections {args.from_conn_id} and {args.to_conn_id} name the same state tables.",
            safe="Nothing was changed.",
            remedy="give the connection of another database with --to-conn-id",
        )
    with _open_database(source) as old, _open_database(target) as new, translate_database_errors():
        new.check_tables_exist()
        old.check_tables_exist()
        copy = copy_state(old, new, moved=f"to the connection {args.to_conn_id}, {new.place}")
        print(
            f"{'Equal rows existed' if copy.existed else 'Copied'}: {sum(copy.rows.values())} rows of {len(copy.rows)} tables."
        )
        for name, count in copy.rows.items():
            print(f"  {name}: {count}")
        print(
            f"{old.place} is fenced: a run, a sensor or a page that still uses it fails, and the error names {args.to_conn_id}."
        )
    if args.from_conn_id == DEFAULT_CONN_ID:
        print(
            f"Pages, commands and tasks use {DEFAULT_CONN_ID} by default. Give it the new database's URL, on standard input: "
            + format_cdc_command("setup", url="-", replace=True)
        )


@contextlib.contextmanager
def _open_database(address: StateAddress) -> Iterator[StateDatabase]:
    from airflow_provider_cdc.state.state_database import StateDatabase

    database = StateDatabase(address.url, schema=address.schema, patience_s=30)
    try:
        yield database
    finally:
        database.close()


def _place(address: StateAddress) -> tuple[object, ...]:
    """Return what identifies the tables: the same place may be written with another login."""
    from sqlalchemy import make_url

    url = make_url(address.url)
    return url.get_backend_name(), url.host, url.port, url.database, address.schema
