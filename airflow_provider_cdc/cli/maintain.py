"""``airflow cdc maintain``: maintains the tables that a connector's changes are applied to."""

from __future__ import annotations

import argparse
import uuid
from typing import Any

from airflow_provider_cdc.cli.common import command, open_store, print_json
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.hooks.connector import ConnectorAccess, access_of, find_connector


@command
def maintain(args: argparse.Namespace) -> None:
    """Maintain the tables of each target of a connector, or of one."""
    from airflow.sdk.exceptions import AirflowException

    from airflow_provider_cdc.operators.maintain_tables import MaintainTablesOperator

    with open_store(args) as store:
        access = access_of(find_connector(store, args.connector), args.state_conn_id)
    if access is None:
        raise CdcError(
            f"It is not recorded where the change log of {args.connector} is.",
            safe="No table was changed.",
            remedy="let the connector capture once, then run this command again",
        )
    reports, problems = [], []
    for target, location in _targets(access, args):
        task = MaintainTablesOperator(
            task_id="maintain", definition=access.definition, target=target, location=location, keep=args.keep_hours,
            conn_id=args.spark_conn_id, storage_conn_id=access.storage_conn_id, jars=args.jars,
        )  # fmt: skip
        try:
            reports.append(task.maintain({}, f"command/{uuid.uuid4()}"))
        except AirflowException as e:
            problems.append(f"{target} at {location}: {e}")
    if args.output == "json":
        print_json(reports)
    else:
        for report in reports:
            _print(report)
    if problems:
        raise SystemExit("\n".join(problems))


def _targets(access: ConnectorAccess, args: argparse.Namespace) -> list[tuple[str, str]]:
    """Kind and location of the targets that were applied to, and are meant.

    :raises CdcError: there is none
    """
    from airflow_provider_cdc.changelog.applied import AppliedReports

    found = [
        (report["target"], report["location"])
        for report in AppliedReports(access.changelog().storage, args.connector).all()
    ]
    meant = [one for one in found if args.location in (None, one[1]) and args.target in (None, one[0])]
    if not meant:
        known = "; ".join(f"{target} at {location}" for target, location in found) or "there was none"
        raise CdcError(
            f"Nothing was applied for {args.connector} to such a target.",
            where=f"targets of its applies: {known}",
            safe="No table was changed.",
            remedy="leave --target and --location out to maintain all of them",
        )
    return meant


def _print(report: dict[str, Any]) -> None:
    for table in report["tables"]:
        print(f"{table['topic']} ({table['location']}):")
        for name, step in table["steps"].items():
            print(f"  {name}: {step['said']}{'' if step['changed'] else ' (nothing to do)'}")
