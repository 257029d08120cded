"""Helpers that the commands share: errors, the state tables, output."""

from __future__ import annotations

import argparse
import contextlib
import functools
import getpass
import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.utils.cli import suppress_logs_and_warning

from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.hooks.state import CdcStateHook

if TYPE_CHECKING:
    from airflow_provider_cdc.state.state_store import StateStore

POLL_S = 1.0
Command = Callable[[argparse.Namespace], None]


def cli_command(function: Command) -> Command:
    """Print a ``CdcError`` as text instead of a traceback, and keep logs out of the output."""

    @functools.wraps(function)
    def run(args: argparse.Namespace) -> None:
        # as Airflow's own commands that look up connections do: read them from the metadata DB
        os.environ["_AIRFLOW_PROCESS_CONTEXT"] = "server"
        try:
            function(args)
        except CdcError as e:
            raise SystemExit(describe_error(e)) from None
        except ModuleNotFoundError as e:
            if not (e.name or "").startswith(("airflow.providers.apache", "pyspark")):
                raise
            raise SystemExit(
                f"This command starts a Spark job, but {e.name} is not installed.\n"
                "  Repair: pip install 'airflow-provider-cdc[spark]'"
            ) from None
        except BrokenPipeError:  # the reader of the output has closed it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except KeyboardInterrupt:
            raise SystemExit(130) from None

    return suppress_logs_and_warning(run)


@contextlib.contextmanager
def open_store(args: argparse.Namespace) -> Iterator[StateStore]:
    """Open the state tables that the command line names."""
    with CdcStateHook(args.state_conn_id).open_store(patience_s=5) as store:
        yield store


def print_json(document: Any) -> None:
    """Print a document for programs; moments in ISO 8601."""
    print(json.dumps(document, indent=2, default=_plain))


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def print_table(columns: tuple[str, ...], rows: list[tuple[Any, ...]], nothing: str) -> None:
    """Print a table.

    :param nothing: text if there is no row
    """
    from airflow.cli.simple_table import AirflowConsole

    if not rows:
        print(nothing)
        return
    data = [dict(zip(columns, map(str, row), strict=True)) for row in rows]
    AirflowConsole().print_as_table(data)


def find_current_user() -> str:
    """Return the person at the command line, as the state tables record it."""
    try:
        return f"{getpass.getuser()} on {socket.gethostname()}"
    except (OSError, KeyError):  # a container without a name for the user
        return f"unknown user on {socket.gethostname()}"
