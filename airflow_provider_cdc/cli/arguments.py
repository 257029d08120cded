"""Arguments and helpers that the commands under ``airflow cdc`` share. Read by every call of ``airflow``."""

from __future__ import annotations

import argparse
import math
from typing import Any

from airflow.cli.cli_config import ARG_VERBOSE, ActionCommand, Arg, lazy_load_command


def build_argument(*flags: str, **options: Any) -> Arg:
    """Build an argument of a command, as of :meth:`argparse.ArgumentParser.add_argument`."""
    return Arg(flags, **options)  # type: ignore[no-untyped-call]


def parse_seconds(text: str) -> float:
    """Parse the seconds that an argument gives.

    :raises ArgumentTypeError: they are none
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to 999999999")
    return value


CONNECTOR = build_argument("connector", help="name of the connector")
OPTIONAL_CONNECTOR = build_argument("connector", nargs="?", help="name of a connector (default: all connectors)")
STATE = build_argument(
    "--state-conn-id", default="cdc_state_default", help="connection to the state tables (default: %(default)s)"
)
OUTPUT = build_argument(
    "-o", "--output", choices=("table", "json"), default="table", help="form of the output (default: table)"
)
LIMIT = build_argument(
    "--limit", type=int, default=20, help="maximum number of entries, newest first (default: %(default)s)"
)
WAIT = build_argument(
    "--wait", action="store_true", help="wait until the signal has ended; exit status: 0 done, 1 not done"
)
DRY = build_argument(
    "--dry-run",
    action="store_true",
    help="print the planned changes without making them; this is the default without --confirm",
)
CONFIRM = build_argument("--confirm", metavar="NAME", help="make the changes; NAME is the connector's name")


def define_command(name: str, help_: str, *args: Arg, where: str, description: str | None = None) -> ActionCommand:
    """Define a command. Its code is imported when the command is called.

    :param where: module of this package and function, as ``list_commands.list_batches``
    """
    func = lazy_load_command(f"airflow_provider_cdc.cli.{where}")
    return ActionCommand(name=name, help=help_, description=description, func=func, args=(*args, ARG_VERBOSE))
