"""Commands that run a procedure at a source, such as ``airflow cdc db2 add-table``: a plan first, then with ``--confirm`` its steps."""

from __future__ import annotations

import argparse

from airflow_provider_cdc.cli.command_support import cli_command, find_current_user, print_json
from airflow_provider_cdc.cli.lifecycle import is_dry, lifecycle_with_source


@cli_command
def carry_out(args: argparse.Namespace) -> None:
    """Show the plan of a procedure, and carry it out if that is confirmed."""
    with lifecycle_with_source(args) as lifecycle:
        plan = lifecycle.plan_procedure(args.procedure, args.table, args.flags)
        dry = args.confirm is None or args.dry_run
        if args.output == "json" and dry:
            print_json(plan.to_document())
        else:
            print(f"{plan.procedure} {plan.table}:")
            for line in plan.steps:
                print(f"  {line}")
            for line in plan.consequences:
                print(f"! {line}")
        if plan.problems:
            raise SystemExit(
                "\n".join(["The change is not possible; nothing was changed.", *(f"  {p}" for p in plan.problems)])
            )
        if args.output == "json" and dry:
            return
        if is_dry(args):
            return
        number = lifecycle.carry_out(
            plan, args.confirm, find_current_user(), lambda line: print(f"… {line}", flush=True)
        )
    print(
        "Done."
        + (f" Signal {number} requests a snapshot of the table from the next run." if number is not None else "")
    )
