"""``airflow cdc maintain``: maintains the tables that a connector's changes are applied to, its change log, and its rows in the state tables. ``airflow cdc targets`` and
``forget-target``: who needs the change log, and who does not any more."""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.cli.command_support import command, open_store, print_json, print_table
from airflow_provider_cdc.cli.target_arguments import connector_and_targets, known_access, spark_of
from airflow_provider_cdc.core.errors import CdcError, ConfigError
from airflow_provider_cdc.hooks.database import TARGET
from airflow_provider_cdc.services.retention import Retained, retain

if TYPE_CHECKING:
    from airflow_provider_cdc.operators.maintain_tables import MaintainTablesOperator
    from airflow_provider_cdc.services.connectors.connector_access import ConnectorAccess

_NOT_FORGOTTEN = "The target is known as before; no batch was removed."


@command
def maintain(args: argparse.Namespace) -> None:
    """Remove what nobody needs any more of a connector's change log and state, and maintain the tables of each of its targets, or of one."""
    if args.dry_run or args.only == "retention":
        _tell(args, _retained(args), [])
        return
    access, targets = connector_and_targets(args)
    tasks = _tasks(args, access, targets)  # arguments are checked before anything is removed
    found = _retained(args) if args.only is None else None
    _tell(args, found, [_maintained(task) for task in tasks])
    if args.only == "tables" and not tasks and args.output != "json":
        print("Nothing to do: a database maintains its tables itself.")


def _retained(args: argparse.Namespace) -> Retained:
    with open_store(args) as store:
        return retain(known_access(store, args), lambda: nullcontext(store), dry_run=args.dry_run)


def _tasks(
    args: argparse.Namespace, access: ConnectorAccess, targets: Sequence[tuple[str, str]]
) -> list[MaintainTablesOperator]:
    """
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


def _maintained(task: MaintainTablesOperator) -> dict[str, Any]:
    """The report about the tables of one target, with ``problem``; also if they could not be maintained."""
    from airflow.sdk.exceptions import AirflowException

    problem = ""
    try:
        task.maintain({}, f"command/{uuid.uuid4()}")
    except (AirflowException, CdcError) as e:
        problem = f"{task.target} at {task.location}: {e}"
    nothing = {
        "connector": task.connector,
        "target": task.target,
        "location": task.location,
        "tables": [],
        "seconds": 0.0,
    }
    return {**(task.report or nothing), "problem": problem}


def _tell(args: argparse.Namespace, retained: Retained | None, reports: list[dict[str, Any]]) -> None:
    """Print what was done.

    :param retained: what became of change log and state tables, if they were to be maintained
    """
    if args.output == "json":
        nothing = {"changelog": None, "state": None}
        print_json({**(nothing if retained is None else retained.document()), "targets": reports})
    else:
        for line in retained.lines() if retained is not None else ():
            print(line)
        for report in reports:
            _print(report)
    problems = retained.problems if retained is not None else []
    if found := [*problems, *(report["problem"] for report in reports if report["problem"])]:
        raise SystemExit("\n".join(found))


def _print(report: dict[str, Any]) -> None:
    for table in report["tables"]:
        print(f"{table['topic']} ({table['location']}):")
        for name, step in table["steps"].items():
            print(f"  {name}: {step['said']}{'' if step['changed'] else ' (nothing to do)'}")


@command
def targets(args: argparse.Namespace) -> None:
    """The targets of a connector, and what they still need of its change log."""
    from airflow_provider_cdc.changelog.retention.retention import Limits, Retention
    from airflow_provider_cdc.changelog.retention.target_progress import needs_of

    with open_store(args) as store:
        access = known_access(store, args)
    changelog = access.changelog()
    plan = Retention(changelog, args.connector, Limits.of(access.definition.properties)).plan()
    holds = {(hold.need.target, hold.need.location): hold for hold in plan.holds}
    found = []
    for need in needs_of(changelog.storage, args.connector):
        hold = holds.get((need.target, need.location))
        silent = hold is not None and hold.silent
        found.append({**need.document(), "since": "" if hold is None else hold.since, "silent": silent})
    if args.output == "json":
        print_json({"first": plan.first, "last": plan.last, "targets": found})
        return
    print_table(
        ("target", "location", "has batches up to", "needs more since", "its last apply", "tables behind"),
        [
            (
                one["target"], one["location"], one["after"], one["since"] + (" (silent)" if one["silent"] else ""), one["applied_at"],
                ", ".join(one["tables"][:5]) + (" …" if len(one["tables"]) > 5 else ""),
            )
            for one in found
        ],
        f"Nothing was applied for {args.connector}: no batch of its change log is removed.",
    )  # fmt: skip
    print(f"The change log has batches {plan.first} to {plan.last}.")


@command
def forget_target(args: argparse.Namespace) -> None:
    """Have a target need nothing of the change log any more."""
    from airflow_provider_cdc.changelog.reports.apply_report import AppliedReports
    from airflow_provider_cdc.services.actions.actions import forgettable

    with open_store(args) as store:
        access = known_access(store, args)
    storage = access.changelog().storage
    need = forgettable(access, args.connector, args.target, args.location)
    print(
        f"{need.name} has batches up to {need.after}. Once it is forgotten, batches after that may be removed from the change log by the next maintenance.\n"
        "Its tables are not touched. If changes are applied to it again, it is known again; tables that lack batches which are gone by then cannot go on."
    )
    if args.dry_run or args.confirm is None:
        print(f"Nothing was changed. To forget it: add --confirm {args.connector}")
        return
    if args.confirm != args.connector:
        raise ConfigError(
            f"--confirm is {args.confirm!r}, and the connector is {args.connector}.",
            safe=_NOT_FORGOTTEN,
            remedy=f"--confirm {args.connector}",
        )
    AppliedReports(storage, args.connector).forget(args.target, args.location)
    print("The target is forgotten.")
