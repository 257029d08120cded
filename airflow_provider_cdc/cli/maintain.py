"""``airflow cdc maintain``, ``targets`` and ``forget-target``: maintenance of a connector's tables and change log.

``maintain`` maintains the tables that a connector's changes are applied to, its change log, and its rows in the state tables. ``targets`` and
``forget-target`` show which targets need the change log, and release one that does not need it any more.
"""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from airflow_provider_cdc.changelog.reports.table_job_reports import TargetMaintained
from airflow_provider_cdc.cli.command_support import cli_command, open_store, print_json, print_table
from airflow_provider_cdc.cli.target_arguments import connector_and_targets, known_access, spark_of
from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import CdcError, ConfigError
from airflow_provider_cdc.hooks.target_database import TARGET
from airflow_provider_cdc.services.connector_retention import RetentionResult, run_retention

if TYPE_CHECKING:
    from airflow_provider_cdc.operators.maintain_tables import MaintainTablesOperator
    from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess

_NOT_FORGOTTEN = "The target is still registered; no batch was removed."


@cli_command
def run_maintenance(args: argparse.Namespace) -> None:
    """Remove old data of a connector's change log and state, and maintain the tables of its targets, or of one.

    Only data that is not needed any more is removed.

    :raises ConfigError: ``--now`` is given without ``--only retention``
    """
    if args.now and args.only != "retention":
        raise ConfigError(
            "--now removes batches of the change log, and nothing else.",
            safe="Nothing was removed.",
            remedy="add --only retention",
        )
    if args.dry_run or args.only == "retention":
        _tell(args, _retained(args), [])
        return
    access, targets = connector_and_targets(args)
    tasks = _tasks(args, access, targets)  # arguments are checked before anything is removed
    retained = _retained(args) if args.only is None else None
    _tell(args, retained, [_maintained(task) for task in tasks])
    if args.only == "tables" and not tasks and args.output != "json":
        print("Nothing to do: a database maintains its tables itself.")


def _retained(args: argparse.Namespace) -> RetentionResult:
    with open_store(args) as store:
        access = known_access(store, args)
        return run_retention(access, lambda: nullcontext(store), dry_run=args.dry_run, at_once=args.now)


def _tasks(
    args: argparse.Namespace, access: ConnectorAccess, targets: Sequence[tuple[str, str]]
) -> list[MaintainTablesOperator]:
    """Build the maintenance tasks, one for each target but databases, which maintain their tables themselves.

    :raises ConfigError: an argument cannot be used
    """
    from airflow_provider_cdc.operators.maintain_tables import MaintainTablesOperator

    spark = spark_of(args)
    return [
        MaintainTablesOperator(
            task_id="maintain", definition=access.definition, target=target, location=location, keep=args.keep_hours,
            storage_conn_id=access.storage_conn_id, retention=False, **spark,
        )
        for target, location in targets
        if target != TARGET  # a database maintains its tables itself
    ]  # fmt: skip


class _MaintenanceOutcome(TargetMaintained):
    """The maintenance of a target, and why it has failed; empty if it has not."""

    problem: str


def _maintained(task: MaintainTablesOperator) -> _MaintenanceOutcome:
    """Return the report about the tables of one target, with ``problem``; also if they could not be maintained."""
    from airflow_provider_cdc.hooks.airflow_compat import AirflowException

    problem = ""
    try:
        task.run_maintenance({}, f"command/{uuid.uuid4()}")
    except (AirflowException, CdcError) as e:
        text = describe_error(e) if isinstance(e, CdcError) else str(e)
        problem = f"{task.target} at {task.location}: {text}"
    nothing: TargetMaintained = {
        "connector": task.connector,
        "target": task.target,
        "location": task.location,
        "tables": [],
        "seconds": 0.0,
    }
    report: TargetMaintained = task.report or nothing
    return {**report, "problem": problem}


def _tell(args: argparse.Namespace, retained: RetentionResult | None, reports: list[_MaintenanceOutcome]) -> None:
    """Print the results.

    :param retained: results for change log and state tables, if they were to be maintained
    """
    if args.output == "json":
        nothing = {"changelog": None, "state": None}
        print_json({**(nothing if retained is None else retained.to_document()), "targets": reports})
    else:
        for line in retained.format_lines() if retained is not None else ():
            print(line)
        for report in reports:
            _print(report)
    problems = retained.problem_texts if retained is not None else []
    if all_problems := [*problems, *(report["problem"] for report in reports if report["problem"])]:
        raise SystemExit("\n".join(all_problems))


def _print(report: _MaintenanceOutcome) -> None:
    for table in report["tables"]:
        print(f"{table['topic']} ({table['location']}):")
        for name, step in table["steps"].items():
            print(f"  {name}: {step['said']}{'' if step['changed'] else ' (nothing to do)'}")


@cli_command
def list_targets(args: argparse.Namespace) -> None:
    """List the targets of a connector, and the batches of its change log that they still need."""
    from airflow_provider_cdc.changelog.retention.batch_retention import Retention, RetentionLimits
    from airflow_provider_cdc.changelog.retention.target_progress import needs_of

    with open_store(args) as store:
        access = known_access(store, args)
    changelog = access.open_change_log()
    plan = Retention(
        changelog, args.connector, RetentionLimits.from_properties(access.definition.properties)
    ).plan_removal()
    holds = {(hold.need.target, hold.need.location): hold for hold in plan.holds}
    entries = []
    for need in needs_of(changelog.storage, args.connector):
        hold = holds.get((need.target, need.location))
        silent = hold is not None and hold.silent
        entries.append(
            {**need.to_document(), "captured_at": "" if hold is None else hold.captured_at, "silent": silent}
        )
    if args.output == "json":
        print_json({"first": plan.first, "last": plan.last, "targets": entries})
        return
    print_table(
        ("target", "location", "applied up to batch", "behind since", "last apply", "tables behind"),
        [
            (
                entry["target"], entry["location"], entry["after"], entry["captured_at"] + (" (silent)" if entry["silent"] else ""), entry["applied_at"],
                ", ".join(entry["tables"][:5]) + (" …" if len(entry["tables"]) > 5 else ""),
            )
            for entry in entries
        ],
        f"No target has applied changes of {args.connector}: no batch of its change log is removed.",
    )  # fmt: skip
    print(f"The change log has batches {plan.first} to {plan.last}.")


@cli_command
def forget_target(args: argparse.Namespace) -> None:
    """Forget a target, so that it needs nothing of the change log any more."""
    from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
    from airflow_provider_cdc.services.actions.action_execution import find_forgettable_target

    with open_store(args) as store:
        access = known_access(store, args)
    storage = access.open_change_log().storage
    need = find_forgettable_target(access, args.connector, args.target, args.location)
    print(
        f"{need.display_name} has applied batches up to {need.after}. After you forget it, the next maintenance may remove later batches from the change log.\n"
        "Its tables are not changed. The next apply to it registers it again; tables that need batches removed by then cannot continue."
    )
    if args.dry_run or args.confirm is None:
        print(f"Nothing was changed. To forget the target, add --confirm {args.connector}")
        return
    if args.confirm != args.connector:
        raise ConfigError(
            f"--confirm is {args.confirm!r}, and the connector is {args.connector}.",
            safe=_NOT_FORGOTTEN,
            remedy=f"--confirm {args.connector}",
        )
    ApplyReports(storage, args.connector).delete_report(args.target, args.location)
    with open_store(args) as store:
        store.targets.forget_target(args.connector, args.target, args.location)
    print("The target was forgotten.")
