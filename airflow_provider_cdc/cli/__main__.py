"""The script ``airflow-cdc``: the commands of ``airflow cdc``, for Airflow 3.1, which takes no commands from providers."""

from __future__ import annotations

import sys


def main() -> None:
    """Run a command of ``airflow cdc`` as Airflow itself does.

    >>> airflow-cdc status shop  # doctest: +SKIP
    """
    from airflow.__main__ import main as run_airflow
    from airflow.cli import cli_parser

    from airflow_provider_cdc.cli.command_parser import build_commands

    for command in build_commands():
        cli_parser.ALL_COMMANDS_DICT[command.name] = command
    sys.argv[:1] = ["airflow", "cdc"]
    run_airflow()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
