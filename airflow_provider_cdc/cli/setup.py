"""Commands that set an installation up: the connection to the state tables with a database role, the files of Spark jobs at a URI, and examples.

Airflow's own login may change everything in the metadata DB. It is stored only if that is asked for.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_provider_cdc.cli.command_support import cli_command
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.hooks.airflow_compat import find_migration_obstacle
from airflow_provider_cdc.hooks.state import CdcStateHook
from airflow_provider_cdc.services.connectors.connector_handle import storage_options
from airflow_provider_cdc.services.example_files import find_examples
from airflow_provider_cdc.services.submit.spark_files import build_files

_SSL = ("ca", "capath", "cert", "key", "cipher", "check_hostname")
"""MySQL's TLS settings that SQLAlchemy takes from a URL, with the prefix ``ssl_``."""


DEFAULT_ROLE = "cdc_state"


@cli_command
def setup_connection(args: argparse.Namespace) -> None:
    """Make the connection to the state tables."""
    from airflow.configuration import conf
    from sqlalchemy import make_url

    logins = {"--role": args.role, "--url": args.url, "--with-airflows-login": args.with_airflows_login}
    given = [flag for flag, value in logins.items() if value]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} cannot be used together.", remedy=f"use {given[0]} alone")
    url = sys.stdin.readline().strip() if args.url == "-" else args.url or _airflows_url()
    schema = None if args.url else conf.get("database", "sql_alchemy_schema", fallback="") or None
    statements: list[str] = []
    if args.role or not (args.url or args.with_airflows_login or make_url(url).get_backend_name() == "sqlite"):
        args.role = args.role or _present_role(args.conn_id, url)
        url, statements = _with_role(args, url, schema)
    same = _store(args, url, schema)
    _report(args, url, same, statements)


def _present_role(conn_id: str, airflows_url: str) -> str:
    """Return the role that the connection has, or the usual one if it has none."""
    from sqlalchemy import make_url

    before = _stored(conn_id)
    present = make_url(before).username if before else None
    return present if present and present != make_url(airflows_url).username else DEFAULT_ROLE


def _airflows_url() -> str:
    """Return the URL of Airflow's metadata DB, with the TLS arguments that Airflow passes to its driver.

    :raises ConfigError: an argument cannot be written into a URL
    """
    from airflow.configuration import conf
    from sqlalchemy import make_url

    url = make_url(conf.get_mandatory_value("database", "sql_alchemy_conn"))
    connect_args: Any = None
    if conf.has_option("database", "sql_alchemy_connect_args"):
        connect_args = conf.getimport("database", "sql_alchemy_connect_args")
    query = {**_arguments(connect_args or {}), **url.query}
    return url.set(query=query).render_as_string(hide_password=False)


def _arguments(connect_args: Mapping[str, Any]) -> dict[str, str]:
    """``[database] sql_alchemy_connect_args`` as SQLAlchemy reads them from a URL.

    >>> _arguments({"sslmode": "verify-full", "ssl": {"ca": "/ca.pem"}})
    {'sslmode': 'verify-full', 'ssl_ca': '/ca.pem'}
    """
    arguments: dict[str, str] = {}
    for name, value in connect_args.items():
        if isinstance(value, (str, int)):
            arguments[name] = str(value).lower() if isinstance(value, bool) else str(value)
        elif name == "ssl" and isinstance(value, Mapping) and set(value) <= set(_SSL):
            arguments |= {
                f"ssl_{part}": str(setting).lower() if isinstance(setting, bool) else str(setting)
                for part, setting in value.items()
            }
        else:
            raise ConfigError(
                f"[database] sql_alchemy_connect_args has {name}, which cannot be written into a URL.",
                safe="No connection was created.",
                remedy=f"write a SQLAlchemy URL with the driver's arguments to a file, and pass the file to `{format_cdc_command('setup', url='-')}` on standard input",
            )
    return arguments


def _with_role(args: argparse.Namespace, url: str, schema: str | None) -> tuple[str, list[str]]:
    """Return the URL with the role's login, and the statements that create the role.

    A password that was made before stays.
    """
    from sqlalchemy import make_url

    from airflow_provider_cdc.state.database_roles import role_sql

    parsed = make_url(url)
    role, before = args.role, _stored(args.conn_id)
    stored_url = make_url(before) if before else None
    stored_password = stored_url.password if stored_url is not None and stored_url.username == role else None
    password = str(stored_password or secrets.token_urlsafe(24))
    role_url = parsed.set(username=role, password=password)
    statements = role_sql(parsed, role, password, schema, plain=args.print_password, require_tls=args.require_tls)
    return role_url.render_as_string(hide_password=False), statements


def _stored(conn_id: str) -> str | None:
    """Return the URL that a connection holds now."""
    from airflow import settings
    from airflow.models import Connection
    from sqlalchemy import select

    assert settings.Session is not None
    with settings.Session() as session:
        there = session.scalar(select(Connection).where(Connection.conn_id == conn_id))
        return there.password if there is not None and there.conn_type == "cdc_state" else None


def _store(args: argparse.Namespace, url: str, schema: str | None) -> bool:
    """Keep the connection; whether it was there already, saying the same.

    :raises ConfigError: it says something else, and is not to be replaced
    """
    from airflow import settings
    from airflow.models import Connection
    from sqlalchemy import select

    extra = json.dumps({"schema": schema}) if schema else None
    assert settings.Session is not None
    with settings.Session() as session:
        there = session.scalar(select(Connection).where(Connection.conn_id == args.conn_id))
        if there is not None and (there.conn_type, there.password) == ("cdc_state", url):
            return True
        if there is not None and not args.replace:
            raise ConfigError(
                f"Connection {args.conn_id} already exists and has different settings.",
                safe="It was not changed.",
                remedy=_command(args, replace=True),
            )
        if there is not None:
            session.delete(there)
            session.flush()
        description = "State tables of change data capture; created by airflow cdc setup."
        session.add(
            Connection(conn_id=args.conn_id, conn_type="cdc_state", password=url, extra=extra, description=description)
        )
        session.commit()
    return False


def _report(args: argparse.Namespace, url: str, same: bool, statements: list[str]) -> None:
    from sqlalchemy import make_url

    shown = make_url(url).render_as_string(hide_password=True)
    ready, text = CdcStateHook(args.conn_id).test_connection()
    print(f"Connection {args.conn_id} {'is up to date' if same else 'was created'}: {shown}")
    if statements:
        shown_now = [statement for statement in statements if not (ready and statement.startswith("CREATE"))]
        if ready:
            print("After an upgrade that adds tables, a database administrator runs these statements again:")
        else:
            print(f"A database administrator creates the role {args.role} with these statements:")
        print("\n".join(["", *(f"{statement};" for statement in shown_now), ""]))
        if not ready:
            print(f"Then check again: {_command(args)}")
    elif make_url(url).get_backend_name() == "sqlite":
        print("SQLite has no roles: every user of the connection can read and change the whole file.")
    elif args.with_airflows_login:
        print(
            "The connection uses Airflow's own login: every user of the connection can read and change all data of Airflow. Use a separate role: "
            + format_cdc_command("setup", replace=True)
        )
    print(text)
    if not ready and not args.url and (setting := find_migration_obstacle()) is not None:
        print(f"Before `airflow db migrate`, this version of Airflow needs a setting: export {setting}")
    if not ready:
        raise SystemExit(1)


def _command(args: argparse.Namespace, *, replace: bool = False) -> str:
    """Return the command with the options that it was called with. A URL, which may have a password, is not repeated."""
    flags = {
        "with-airflows-login": args.with_airflows_login,
        "print-password": args.print_password,
        "require-tls": args.require_tls,
        "replace": replace,
    }
    command = format_cdc_command("setup", conn_id=args.conn_id, role=args.role, url="-" if args.url else None)
    return " ".join([command, *(f"--{flag}" for flag, given in flags.items() if given)])


@cli_command
def copy_spark_files(args: argparse.Namespace) -> None:
    """Write the scripts and the package to a folder or an object store."""
    from airflow_provider_cdc.changelog.files.storage import Storage

    storage = Storage(args.to, storage_options(args.storage_conn_id))
    for name, content in build_files():
        storage.replace(storage.join_path(name), content)
        print(storage.build_uri(name))


@cli_command
def show_examples(args: argparse.Namespace) -> None:
    """List the examples, print one of them, or copy them to a folder."""
    examples = find_examples()
    if args.name is not None:
        if args.name not in examples:
            raise ConfigError(
                f"{args.name} is no example.",
                safe="Nothing was written.",
                remedy=f"choose one of the names that `{format_cdc_command('examples')}` lists",
            )
        examples = {args.name: examples[args.name]}
    if args.to is not None:
        _copy_examples(examples, Path(args.to))
    elif args.name is not None:
        print(examples[args.name].read_text(), end="")
    else:
        print("\n".join(examples))


def _copy_examples(examples: dict[str, Path], folder: Path) -> None:
    """Copy files, each to the same name below a folder.

    :raises ConfigError: another file is there
    """
    places = {folder / name: path.read_bytes() for name, path in examples.items()}
    if others := [str(place) for place, text in places.items() if place.exists() and place.read_bytes() != text]:
        raise ConfigError(
            f"Other files are there already: {', '.join(others[:5])}{'' if len(others) < 6 else ', …'}.",
            where=str(folder),
            safe="Nothing was written.",
            remedy="give another folder to --to, or move these files away",
        )
    for place, text in places.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text)
        print(place)
