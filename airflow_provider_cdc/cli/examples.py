"""The command that shows and copies the example files of the package."""

from __future__ import annotations

import argparse
from pathlib import Path

from airflow_provider_cdc.cli.command_support import cli_command
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.services.example_files import find_examples


@cli_command
def show_examples(args: argparse.Namespace) -> None:
    """List the examples, print one of them, or copy them to a folder."""
    found = find_examples()
    if args.name is not None:
        if args.name not in found:
            raise ConfigError(
                f"{args.name} is no example.",
                safe="Nothing was written.",
                remedy=f"choose one of the names that `{format_cdc_command('examples')}` lists",
            )
        found = {args.name: found[args.name]}
    if args.to is not None:
        _copy(found, Path(args.to))
    elif args.name is not None:
        print(found[args.name].read_text(), end="")
    else:
        print("\n".join(found))


def _copy(found: dict[str, Path], folder: Path) -> None:
    """Copy files, each to the same name below a folder.

    :raises ConfigError: another file is there
    """
    places = {folder / name: path.read_bytes() for name, path in found.items()}
    if others := [str(place) for place, text in places.items() if place.exists() and place.read_bytes() != text]:
        raise ConfigError(
            f"Other files are there already: {', '.join(others[:5])}{'' if len(others) < 6 else ', …'}.",
            where=str(folder),
            safe="Nothing was written.",
            remedy="give another folder to --to, or move these files away",
        )
    for place, text in places.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text)
        print(place)
