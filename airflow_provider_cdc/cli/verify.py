"""``airflow cdc verify`` and ``airflow cdc rebuild``: compare the tables of a target with the source, and build tables again."""

from __future__ import annotations

import argparse
import sys
from datetime import timedelta

from airflow_provider_cdc.cli.common import command, print_json, who
from airflow_provider_cdc.cli.targets import one_target, spark_of
from airflow_provider_cdc.core.errors import CdcError


@command
def verify(args: argparse.Namespace) -> None:
    """Compare tables with the source; exit status 0 all that can be compared is equal, 1 something is not, 2 something was not compared."""
    from airflow.sdk.exceptions import AirflowException

    from airflow_provider_cdc.operators.verify_tables import VerifyTablesOperator

    try:
        access, target, location = one_target(args)
        task = VerifyTablesOperator(
            task_id="verify", definition=access.definition, source_conn_id=access.conn_id, target=target, location=location,
            tables=args.tables or (), values=args.values, keys=args.keys or "", repair=args.repair, wait=timedelta(seconds=args.timeout),
            scratch=args.scratch, keep_scratch=args.keep, state_conn_id=access.state_conn_id, storage_conn_id=access.storage_conn_id,
            **spark_of(args),
        )  # fmt: skip
        verified = task.verify({}, who())
    except (CdcError, AirflowException) as e:
        raise _not_done(e) from None
    if args.output == "json":
        print_json(verified.document() | {"repairs": task.repaired})
    else:
        print("\n".join([verified.text(), *(f"repair of {line}" for line in task.repaired)]))
    if verified.status:
        raise SystemExit(verified.status)


@command
def rebuild(args: argparse.Namespace) -> None:
    """Build tables again from the change log."""
    from airflow.sdk.exceptions import AirflowException

    from airflow_provider_cdc.operators.rebuild_tables import RebuildTablesOperator

    access, target, location = one_target(args)
    task = RebuildTablesOperator(
        task_id="rebuild", definition=access.definition, target=target, location=location, tables=args.table,
        to=args.to or "", batch=args.batch, time=args.time or "", storage_conn_id=access.storage_conn_id, **spark_of(args),
    )  # fmt: skip
    try:
        report = task.rebuild({})
    except AirflowException as e:
        raise SystemExit(str(e)) from None
    if args.output == "json":
        print_json(report)
        return
    for table in report["tables"]:
        print(
            f"{table.get('name') or table['topic']}: built as of batch {table['batch']} at {table['location']}, {table['seconds']} s"
        )


def _not_done(e: Exception) -> SystemExit:
    print(e, file=sys.stderr)
    return SystemExit(2)
