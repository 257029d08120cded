"""``airflow cdc maintain``: maintains the tables that a connector's changes are applied to."""

from __future__ import annotations

import argparse
import uuid
from typing import Any

from airflow_provider_cdc.cli.common import command, print_json
from airflow_provider_cdc.cli.targets import connector_and_targets, spark_of


@command
def maintain(args: argparse.Namespace) -> None:
    """Maintain the tables of each target of a connector, or of one."""
    from airflow.sdk.exceptions import AirflowException

    from airflow_provider_cdc.operators.maintain_tables import MaintainTablesOperator

    access, targets = connector_and_targets(args)
    reports, problems = [], []
    for target, location in targets:
        task = MaintainTablesOperator(
            task_id="maintain", definition=access.definition, target=target, location=location, keep=args.keep_hours,
            storage_conn_id=access.storage_conn_id, **spark_of(args),
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


def _print(report: dict[str, Any]) -> None:
    for table in report["tables"]:
        print(f"{table['topic']} ({table['location']}):")
        for name, step in table["steps"].items():
            print(f"  {name}: {step['said']}{'' if step['changed'] else ' (nothing to do)'}")
