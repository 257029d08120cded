"""The targets that a connector's changes were applied to, for commands that work on their tables."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.cli.common import open_store
from airflow_provider_cdc.core.errors import CdcError, ConfigError
from airflow_provider_cdc.hooks.connector import ConnectorAccess, access_of, find_connector
from airflow_provider_cdc.hooks.database import TARGET

if TYPE_CHECKING:
    from airflow_provider_cdc.state.store import StateStore

_UNTOUCHED = "No table was changed."


def spark_of(args: argparse.Namespace) -> dict[str, Any]:
    """How the job of a command is submitted: arguments of its operator.

    :raises ConfigError: a setting has no value
    """
    settings = [text.partition("=") for text in args.conf or ()]
    if wrong := [name for name, mark, _ in settings if not (name and mark)]:
        raise ConfigError(
            f"--conf {wrong[0]} has no value.", safe=_UNTOUCHED, remedy="for example --conf spark.driver.memory=2g"
        )
    conf = {name: value for name, _, value in settings}
    return {"conn_id": args.spark_conn_id, "jars": args.jars, "packages": args.packages, "conf": conf or None}


def known_access(store: StateStore, args: argparse.Namespace) -> ConnectorAccess:
    """The connector of a command.

    :raises CdcError: it has not captured yet
    """
    access = access_of(find_connector(store, args.connector), args.state_conn_id)
    if access is None:
        raise CdcError(
            f"It is not recorded where the change log of {args.connector} is.",
            safe=_UNTOUCHED,
            remedy="let the connector capture once, then run this command again",
        )
    return access


def connector_and_targets(args: argparse.Namespace) -> tuple[ConnectorAccess, list[tuple[str, str]]]:
    """The connector of a command, and kind and location of its targets that are meant by ``--target`` and ``--location``.

    :raises CdcError: there is none
    """
    from airflow_provider_cdc.changelog.applied import AppliedReports

    with open_store(args) as store:
        access = known_access(store, args)
    reports = AppliedReports(access.changelog().storage, args.connector).all()
    # one whose first apply has not come to anything has no tables
    found = [(report["target"], report["location"]) for report in reports if report["last_batch"] or report["stands"]]
    meant = [one for one in found if args.location in (None, one[1]) and args.target in (None, one[0])]
    if not meant:
        known = "; ".join(f"{target} at {location}" for target, location in found) or "there was none"
        raise CdcError(
            f"Nothing was applied for {args.connector} to such a target.",
            where=f"targets of its applies: {known}",
            safe=_UNTOUCHED,
            remedy="leave --target and --location out to mean all of them",
        )
    return access, meant


def database_of(access: ConnectorAccess, location: str, given: str | None) -> tuple[str, dict[str, Any]]:
    """Connection and properties of a database that a connector's changes are applied to, as its last apply had them.

    :param given: another connection to it
    :raises CdcError: they are not recorded, and no connection is given
    """
    from airflow_provider_cdc.changelog.applied import AppliedReports

    report = AppliedReports(access.changelog().storage, access.definition.name).read(TARGET, location) or {}
    known = report.get("database") or {}
    if not (conn_id := given or known.get("conn_id", "")):
        raise CdcError(
            f"It is not recorded by which connection the changes of {access.definition.name} are applied to {location}.",
            safe=_UNTOUCHED,
            remedy="give it with --database; or run the apply once, then this command again",
        )
    return conn_id, dict(known.get("sink") or {})


def one_target(args: argparse.Namespace) -> tuple[ConnectorAccess, str, str]:
    """The connector, and kind and location of the one target that is meant.

    :raises CdcError: there is none, or several
    """
    access, meant = connector_and_targets(args)
    if len(meant) > 1:
        raise CdcError(
            f"The changes of {args.connector} are applied to {len(meant)} targets.",
            where="; ".join(f"{target} at {location}" for target, location in meant),
            safe=_UNTOUCHED,
            remedy="say which one with --location and --target",
        )
    return access, *meant[0]
