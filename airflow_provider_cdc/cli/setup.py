"""The command ``setup``: the connection to the state tables, and a database role for it."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from collections.abc import Mapping
from typing import Any

from airflow_provider_cdc.cli.command_support import cli_command
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.hooks.airflow_compat import find_migration_obstacle
from airflow_provider_cdc.hooks.state import CdcStateHook

_SSL = ("ca", "capath", "cert", "key", "cipher", "check_hostname")
"""MySQL's TLS settings that SQLAlchemy takes from a URL, with the prefix ``ssl_``."""


@cli_command
def setup_connection(args: argparse.Namespace) -> None:
    """Make the connection to the state tables."""
    from airflow.configuration import conf

    if args.role and args.url:
        raise ConfigError(
            "--role and --url cannot be used together.", remedy="give the URL of the role's own login with --url"
        )
    url = sys.stdin.readline().strip() if args.url == "-" else args.url or _airflows_url()
    schema = None if args.url else conf.get("database", "sql_alchemy_schema", fallback="") or None
    statements: list[str] = []
    if args.role:
        url, statements = _with_role(url, args.role, schema, args.conn_id)
    same = _store(args, url, schema)
    _report(args, url, same, statements)


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


def _with_role(url: str, role: str, schema: str | None, conn_id: str) -> tuple[str, list[str]]:
    """Return the URL with the role's login, and the statements that create the role.

    A password that was made before stays.
    """
    from sqlalchemy import make_url

    from airflow_provider_cdc.state.database_roles import role_sql

    parsed = make_url(url)
    before = _stored(conn_id)
    stored_url = make_url(before) if before else None
    stored_password = stored_url.password if stored_url is not None and stored_url.username == role else None
    password = str(stored_password or secrets.token_urlsafe(24))
    role_url = parsed.set(username=role, password=password)
    return role_url.render_as_string(hide_password=False), role_sql(parsed, role, password, schema)


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
                remedy=format_cdc_command("setup", conn_id=args.conn_id, role=args.role, replace=True),
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
        print(
            f"A database administrator creates the role {args.role} with these statements, and runs the GRANTs again after an upgrade:"
        )
        print("\n".join(["", *(f"{statement};" for statement in statements), ""]))
        if not ready:
            print(f"Then check again: {format_cdc_command('setup', conn_id=args.conn_id, role=args.role)}")
    elif not args.url and make_url(url).get_backend_name() != "sqlite":
        print(
            "The connection uses Airflow's own login: every user of the connection can read and change all data of Airflow. Use a separate role: "
            + format_cdc_command("setup", role="cdc", replace=True)
        )
    print(text)
    if not ready and not args.url and (setting := find_migration_obstacle()) is not None:
        print(f"Before `airflow db migrate`, this version of Airflow needs a setting: export {setting}")
    if not ready:
        raise SystemExit(1)
