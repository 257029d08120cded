"""The argument parser of ``airflow cdc``, without Airflow's other commands."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from airflow.cli.cli_config import GroupCommand

from airflow_provider_cdc.cli.command_parser import build_commands


def parser() -> argparse.ArgumentParser:
    """Takes what is behind ``airflow cdc``; options have to be written out."""
    made = argparse.ArgumentParser("airflow cdc", allow_abbrev=False)
    (group,) = build_commands()
    _add(made, group.subcommands)
    return made


def _add(parser: argparse.ArgumentParser, found: Iterable[Any]) -> None:
    below = parser.add_subparsers(required=True)
    for command in found:
        own = below.add_parser(command.name, allow_abbrev=False)
        if isinstance(command, GroupCommand):
            _add(own, command.subcommands)
            continue
        for argument in command.args:
            argument.add_to_parser(own)
        own.set_defaults(func=command.func)
