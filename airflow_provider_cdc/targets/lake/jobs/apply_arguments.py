"""Command-line arguments of the jobs that apply a change log."""

from __future__ import annotations

import argparse
import os
import socket


def parse_arguments(arguments: list[str] | None, description: str | None) -> argparse.Namespace:
    """Parse the arguments of ``apply_changes.py``.

    :param description: beginning of its help
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changelog", required=True, help="folder or object store prefix of the change log")
    parser.add_argument("--connector", required=True)
    parser.add_argument(
        "--location", required=True, help="location of the tables, for example /lake/{database}/{table}"
    )
    parser.add_argument("--target", default="delta", help="table format: delta (default) or iceberg")
    parser.add_argument(
        "--profile", default="compatible",
        help="settings of new tables: compatible (most readers support them) or fast (small changes to large tables cost less)",
    )  # fmt: skip
    parser.add_argument(
        "--writes", default="auto",
        help="write strategy for tables with a key: merge (always a Spark MERGE), commit (arrays wherever possible), or auto (the cheaper of the two)",
    )  # fmt: skip
    parser.add_argument(
        "--tables", metavar="RULES", default="[]",
        help="table rules, as JSON or YAML, or a file with them: mode, columns, filter, location and so on, by patterns of source tables",
    )  # fmt: skip
    parser.add_argument("--threads", type=int, default=4, help="number of tables to apply at the same time")
    parser.add_argument(
        "--adopt", metavar="TOPIC", action="append", default=[],
        help="take over the table at the location of this topic, although it has another owner, and replace its rows; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--check-crc", action="store_true",
        help="check the checksum of each change log file, in addition to its size and number of rows",
    )  # fmt: skip
    parser.add_argument(
        "--run-for", metavar="SECONDS", type=parse_seconds, default=0.0,
        help="keep running for this time: one session applies each batch as soon as it exists, and takes over from the current continuous apply",
    )  # fmt: skip
    parser.add_argument(
        "--owner", default="", help="name of this run in logs and reports; with --run-for, the machine and process by default",
    )  # fmt: skip
    return parser.parse_args(arguments)


def this_job() -> str:
    """Return the owner of a job that was given none."""
    return f"{socket.gethostname()}:{os.getpid()}"


def parse_seconds(text: str) -> float:
    """Parse the seconds of an argument; more than none.

    :raises ValueError: it is not
    """
    if not 0 < (value := float(text)) < float("inf"):
        raise ValueError
    return value
