"""``airflow cdc verify`` and ``airflow cdc rebuild``: compare the tables of a target with the source, and build tables again."""

from __future__ import annotations

import argparse
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

from airflow_provider_cdc.cli.command_support import cli_command, find_current_user, print_json
from airflow_provider_cdc.cli.target_arguments import one_target, spark_of
from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.hooks.target_database import TARGET

if TYPE_CHECKING:
    from airflow_provider_cdc.changelog.reports.table_job_reports import RebuildReport
    from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess
    from airflow_provider_cdc.verify.verification_report import VerificationReport


@cli_command
def verify_tables(args: argparse.Namespace) -> None:
    """Compare tables with the source; exit status 0 all that can be compared is equal, 1 something is not, 2 something was not compared."""
    from airflow_provider_cdc.hooks.airflow_compat import AirflowException

    try:
        verified, repaired = _verified(args, *one_target(args))
    except (CdcError, AirflowException) as e:
        raise _not_done(e) from None
    if args.output == "json":
        print_json(verified.to_document() | {"repairs": repaired})
    else:
        print("\n".join([verified.format_text(), *(f"repair of {line}" for line in repaired)]))
    if verified.exit_status:
        raise SystemExit(verified.exit_status)


def _verified(
    args: argparse.Namespace, access: ConnectorAccess, target: str, location: str
) -> tuple[VerificationReport, list[str]]:
    """Run the comparison, and return its report and the texts of repairs."""
    from airflow_provider_cdc.operators.table_actions import build_verify_task

    options = {
        "tables": args.tables or (), "values": args.values, "keys": args.keys or "", "repair": args.repair,
        "wait": timedelta(seconds=args.timeout), "scratch": args.scratch, "keep_scratch": args.keep,
    }  # fmt: skip
    job = build_verify_task(access, target, location, spark_of(args), database=args.database, **options)
    return (
        job.run_verification(find_current_user()) if target == TARGET else job.run_verification({}, find_current_user())
    ), job.repaired


@cli_command
def rebuild_tables(args: argparse.Namespace) -> None:
    """Build tables again from the change log."""
    from airflow_provider_cdc.hooks.airflow_compat import AirflowException

    try:
        report = _rebuilt(args, *one_target(args))
    except AirflowException as e:
        raise SystemExit(str(e)) from None
    if args.output == "json":
        print_json(report)
        return
    for table in report["tables"]:
        print(
            f"{table.get('name') or table['topic']}: rebuilt as of batch {table['batch']} at {table['location']}, {table['seconds']} s"
        )


def _rebuilt(args: argparse.Namespace, access: ConnectorAccess, target: str, location: str) -> RebuildReport:
    """Build the tables, and return the report.

    :raises ConfigError: an argument cannot be used
    """
    from airflow_provider_cdc.operators.table_actions import build_rebuild_task

    when = {"to": args.to or "", "batch": args.batch, "time": args.time or ""}
    job = build_rebuild_task(access, target, location, args.table, spark_of(args), database=args.database, **when)
    report: RebuildReport = job.run_rebuild() if target == TARGET else job.run_rebuild({})
    return report


def _not_done(e: Exception) -> SystemExit:
    print(describe_error(e) if isinstance(e, CdcError) else e, file=sys.stderr)
    return SystemExit(2)
