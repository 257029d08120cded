"""The targets that a connector's changes were applied to, as the arguments of a command name them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.cli.command_support import open_store
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.services.connectors import connector_targets
from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess

if TYPE_CHECKING:
    from airflow_provider_cdc.state.state_store import StateStore


def spark_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of a command's operator that say how its job is submitted.

    :raises ConfigError: a setting has no value
    """
    settings = [text.partition("=") for text in args.conf or ()]
    if wrong := [name for name, mark, _ in settings if not (name and mark)]:
        raise ConfigError(
            f"--conf {wrong[0]} has no value.",
            safe=connector_targets.UNTOUCHED,
            remedy="for example --conf spark.driver.memory=2g",
        )
    conf = {name: value for name, _, value in settings}
    return {
        "conn_id": args.spark_conn_id,
        "spark_version": args.spark_version,
        "jars": args.jars,
        "packages": args.packages,
        "conf": conf or None,
    }


def known_access(store: StateStore, args: argparse.Namespace) -> ConnectorAccess:
    """Return the connector of a command.

    :raises CdcError: it has not captured yet
    """
    return connector_targets.known_access(store, args.connector, args.state_conn_id)


def connector_and_targets(args: argparse.Namespace) -> tuple[ConnectorAccess, list[tuple[str, str]]]:
    """Return the connector, and kind and location of the targets that ``--target`` and ``--location`` mean.

    :raises CdcError: there is none
    """
    with open_store(args) as store:
        access = known_access(store, args)
    return access, connector_targets.targets_of(access, args.target, args.location)


def one_target(args: argparse.Namespace) -> tuple[ConnectorAccess, str, str]:
    """Return the connector, and kind and location of the one target that is meant.

    :raises CdcError: there is none, or several
    """
    with open_store(args) as store:
        access = known_access(store, args)
    return access, *connector_targets.one_target(access, args.target, args.location)
