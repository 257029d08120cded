"""Commands that control a connector: ``status``, ``pause``, ``resume``, ``stop``, ``restart``, ``delete``, ``offset``, ``gap``."""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.cli.command_support import (
    POLL_S,
    cli_command,
    find_current_user,
    open_store,
    print_json,
    print_table,
)
from airflow_provider_cdc.core.errors import CdcError, ConfigError
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.services.connectors.connector_handle import access_of, find_connector
from airflow_provider_cdc.services.connectors.source_readiness import WAYS_OUT, resolve_access
from airflow_provider_cdc.services.text import status_texts
from airflow_provider_cdc.services.text.pause_gap_signal_texts import gap_text

if TYPE_CHECKING:
    from airflow_provider_cdc.core.lifecycle.connector_lifecycle import ConnectorLifecycle
    from airflow_provider_cdc.core.lifecycle.offset_plan import OffsetPlan


@cli_command
def show_status(args: argparse.Namespace) -> None:
    """Show the status of a connector."""
    from airflow_provider_cdc.core.lifecycle.connector_lifecycle import ConnectorLifecycle
    from airflow_provider_cdc.hooks.page_links import build_log_url
    from airflow_provider_cdc.services.connectors.captured_tables import format_names, known_tables
    from airflow_provider_cdc.services.dashboards.connector_alerts import load_connector_alerts
    from airflow_provider_cdc.services.dashboards.connector_overview import load_lag_text

    with open_store(args) as store:
        row = find_connector(store, args.connector)
        tables = known_tables(store, row)
        status = ConnectorLifecycle(args.connector, store).inspect_status()
        alerts, lag = load_connector_alerts(store, row), load_lag_text(store, row)
    targets, works, trouble = status_texts.beside_changelog(row)
    if args.output == "json":
        print_json(
            status.to_document()
            | {"tables": tables, "targets": targets, "work": [work.to_document() for work in works]}
            | {"alerts": [alert.model_dump(mode="json") for alert in alerts]}
        )
    else:
        for line in status_texts.status_lines(status, lag):
            print(line)
        for task in dict.fromkeys(alert.task for alert in alerts if alert.task is not None):
            print(f"  Task log:   {task.text}: {build_log_url(task.log_path)}")
        for line in status_texts.work_lines(works):
            print(line)
        print(f"  Tables:     {len(tables)}: {format_names(tables)}" if tables else "  Tables:     none known yet")
        for line in status_texts.metrics_lines(status.metrics):
            print(line)
        for line in status_texts.target_lines(targets, trouble):
            print(line)
    if status.state == "failed":
        raise SystemExit(1)


@cli_command
def pause_connector(args: argparse.Namespace) -> None:
    """Pause a connector."""
    with _lifecycle(args) as lifecycle:
        lifecycle.pause(find_current_user(), args.reason)
        _report_request(args, lifecycle, format_cdc_command("resume", args.connector))


@cli_command
def stop_connector(args: argparse.Namespace) -> None:
    """Stop a connector."""
    with _lifecycle(args) as lifecycle:
        lifecycle.stop(find_current_user(), args.reason)
        _report_request(args, lifecycle, format_cdc_command("resume", args.connector))


@cli_command
def resume_connector(args: argparse.Namespace) -> None:
    """Resume a connector."""
    with _lifecycle(args) as lifecycle:
        lifecycle.resume(find_current_user(), args.reason)
        print(f"Connector {args.connector} continues with its next run.")


@cli_command
def restart_run(args: argparse.Namespace) -> None:
    """End the run that is alive, so that another one begins."""
    with _lifecycle(args) as lifecycle:
        control = lifecycle.restart(find_current_user(), args.reason)
        owner = lifecycle.inspect_status().owner
    print(f"The run {owner} ends at the next transaction." if owner else "No run is active, so no run was restarted.")
    if control.desired_state != "running":
        print(f"The connector stays {control.desired_state}: {format_cdc_command('resume', args.connector)}")


@cli_command
def delete_connector(args: argparse.Namespace) -> None:
    """Delete a connector."""
    with open_store(args) as store:
        row = find_connector(store, args.connector)
    too = "its change log with all batches" if args.with_changelog else None
    print(
        f"State of {args.connector}: offset, history, schema history, signals, notifications, {row.last_batch} batches."
    )
    if too:
        where = row.registration.changelog if row.registration else "location not recorded"
        print(f"Change log: {where}, all data of {args.connector}.")
    print("The records of people's actions stay.")
    print(
        "Target tables are not changed; they keep the number of their last batch, so give a new connector a new name."
    )
    if args.yes_delete is None:
        raise SystemExit(f"Nothing was deleted. To delete the connector, add --yes-delete {args.connector}")
    with _lifecycle(args, changelog=args.with_changelog) as lifecycle:
        lifecycle.delete(args.yes_delete, find_current_user(), with_changelog=args.with_changelog)
    print(f"Connector {args.connector} was deleted{', with ' + too if too else '; its change log stays'}.")


# -- the offset -------------------------------------------------------------------------------------------------------


@cli_command
def offset_show(args: argparse.Namespace) -> None:
    """Show the offset as it is stored."""
    with open_store(args) as store:
        row = find_connector(store, args.connector)
    moved = None if row.moved_at is None else row.moved_at.isoformat(timespec="seconds")
    offset = None if row.offset is None else row.offset.to_document()
    print_json({"connector": args.connector, "version": row.version, "moved_at": moved, "offset": offset})


@cli_command
def offset_history(args: argparse.Namespace) -> None:
    """List the offsets that a connector has had."""
    with open_store(args) as store:
        find_connector(store, args.connector)
        rows = store.offset_history(args.connector, args.limit)
    if args.output == "json":
        print_json([row.to_document() for row in rows])
        return
    print_table(
        ("version", "moved", "position", "seq", "batch", "why"),
        [
            (
                row.version, row.created_at.isoformat(timespec="seconds"),
                status_texts.position_text(row.offset.position), f"{row.offset.seq:,}", row.offset.batch, row.reason,
            )
            for row in rows
        ],
        f"Connector {args.connector} has had no offset.",
    )  # fmt: skip


@cli_command
def offset_set(args: argparse.Namespace) -> None:
    """Set the offset, so that the connector continues from another position."""
    try:
        position = json.loads(args.to)
    except ValueError as e:
        raise ConfigError(
            f"--to is not JSON: {e}",
            remedy=f"give a position as `{format_cdc_command('offset show', args.connector)}` has it",
        ) from None
    if not isinstance(position, dict) or not position:
        raise ConfigError(
            "--to is not a JSON object.",
            remedy=f"give a position as `{format_cdc_command('offset show', args.connector)}` has it",
        )
    with lifecycle_with_source(args) as lifecycle:
        assert lifecycle.source is not None
        _carry_out(args, lifecycle, lifecycle.plan_offset(lifecycle.source.position_of(position)))


@cli_command
def offset_reset(args: argparse.Namespace) -> None:
    """Forget the offset."""
    with lifecycle_with_source(args) as lifecycle:
        _carry_out(args, lifecycle, lifecycle.plan_offset(None))


@cli_command
def offset_restore(args: argparse.Namespace) -> None:
    """Go back to an earlier offset."""
    with lifecycle_with_source(args) as lifecycle:
        _carry_out(args, lifecycle, lifecycle.plan_restore(args.version))


def _carry_out(args: argparse.Namespace, lifecycle: ConnectorLifecycle, plan: OffsetPlan) -> None:
    print(f"Connector {plan.connector}: from {plan.now} to {plan.target} ({plan.effect.value}).")
    for line in plan.consequences:
        print(f"  {line}")
    if plan.problems:
        raise SystemExit(
            "\n".join(["The change is not possible; nothing was changed.", *(f"  {p}" for p in plan.problems)])
        )
    if is_dry(args):
        return
    stored = lifecycle.apply_offset(plan, args.confirm, find_current_user())
    print(f"Done: the offset is now at version {stored.version}; the previous offset stays in the history.")


# -- gaps -------------------------------------------------------------------------------------------------------------


@cli_command
def check_gap(args: argparse.Namespace) -> None:
    """Check whether the log still holds the position, and show how to continue if it does not."""
    from airflow_provider_cdc.core.lifecycle.log_gap import GapRepair

    with lifecycle_with_source(args) as lifecycle:
        gap = lifecycle.find_gap()
        if args.output == "json" and args.repair is None:
            print_json({"gap": None if gap is None else gap.to_document()})
        else:
            print(gap_text(gap, args.connector))
            for owed in lifecycle.inspect_status().owed:
                print(f"Owed: {owed}.")
        if gap is None:
            return
        if args.repair is None:
            if args.output != "json":
                print(_ways(args.connector))
            raise SystemExit(1)
        print(next(way.effect for way in WAYS_OUT if way.repair == args.repair))
        if is_dry(args):
            return
        done = lifecycle.repair_gap(GapRepair(args.repair), args.confirm, find_current_user())
    print(
        f"Repaired by {done.how.value}."
        + (f" Signal {done.signal} requests the snapshot." if done.signal is not None else "")
    )


def _ways(connector: str) -> str:
    """Format the remedies for a gap, with the commands that run them."""
    commands = [format_cdc_command("gap", connector, repair=way.repair) for way in WAYS_OUT]
    width = max(map(len, commands))
    lines = (f"  {command:<{width}}  {way.short}" for command, way in zip(commands, WAYS_OUT, strict=True))
    return "\n".join(["Options to continue:", *lines])


# -- plumbing ---------------------------------------------------------------------------------------------------------


def is_dry(args: argparse.Namespace) -> bool:
    """Check whether this is a dry run; if so, print how to confirm the change."""
    if args.confirm is not None and not args.dry_run:
        return False
    print(f"Nothing was changed. To make the change, add --confirm {args.connector}")
    return True


def _report_request(args: argparse.Namespace, lifecycle: ConnectorLifecycle, back: str) -> None:
    """Print the new state; with ``--wait`` after the run that was alive has ended."""
    owner = lifecycle.inspect_status().owner
    if owner is not None:
        print(f"The run {owner} ends at the next transaction.")
    while args.wait and lifecycle.inspect_status().owner is not None:
        time.sleep(POLL_S)
    print(f"Connector {args.connector}: {status_texts.state_text(lifecycle.inspect_status())}. To resume it: {back}")


@contextlib.contextmanager
def _lifecycle(args: argparse.Namespace, *, changelog: bool = False) -> Iterator[ConnectorLifecycle]:
    """Open the connector without its source.

    :param changelog: with its change log
    """
    from airflow_provider_cdc.core.lifecycle.connector_lifecycle import ConnectorLifecycle

    with open_store(args) as store:
        row = find_connector(store, args.connector)
        access = access_of(row, args.state_conn_id) if changelog else None
        if changelog and access is None:
            raise CdcError(
                f"The location of the change log of {args.connector} is not recorded.", safe="Nothing was changed."
            )
        log: Any = None if access is None else access.open_change_log()
        yield ConnectorLifecycle(args.connector, store, log)


@contextlib.contextmanager
def lifecycle_with_source(args: argparse.Namespace) -> Iterator[ConnectorLifecycle]:
    """Open the connector with the source of its last run, with the present properties of the connection."""
    with open_store(args) as store:
        record = find_connector(store, args.connector)
    with resolve_access(record, args.state_conn_id).prepare_lifecycle() as lifecycle:
        yield lifecycle
