"""Command-line arguments of the jobs that apply a change log."""

from __future__ import annotations

import argparse
import os
import socket


def parse_arguments(arguments: list[str] | None, description: str | None) -> argparse.Namespace:
    """Parse the arguments of ``apply_changes.py``.

    :param description: what its help begins with
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changelog", required=True, help="folder or object store prefix of the change log")
    parser.add_argument("--connector", required=True)
    parser.add_argument("--location", required=True, help="where tables are, for example /lake/{database}/{table}")
    parser.add_argument("--target", default="delta", help="kind of the tables: delta (default) or iceberg")
    parser.add_argument(
        "--profile", default="compatible",
        help="how new tables begin: compatible (most readers know them) or fast (small changes to large tables cost less)",
    )  # fmt: skip
    parser.add_argument(
        "--writes", default="auto",
        help="how rows of tables with a key are written: merge (always by a MERGE of Spark), commit (as arrays wherever they can be), or auto: what costs less",
    )  # fmt: skip
    parser.add_argument(
        "--tables", metavar="RULES", default="[]",
        help="rules for tables, as JSON or YAML, or a file with them: mode, columns, filter, location and so on by patterns of source tables",
    )  # fmt: skip
    parser.add_argument("--threads", type=int, default=4, help="tables worked on at the same time")
    parser.add_argument(
        "--adopt", metavar="TOPIC", action="append", default=[],
        help="take over the table at this topic's place, though it is somebody else's: its rows are replaced; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--check-crc", action="store_true",
        help="compare the checksum of each file of the change log, besides its size and number of rows",
    )  # fmt: skip
    parser.add_argument(
        "--run-for", metavar="SECONDS", type=parse_seconds, default=0.0,
        help="go on for so long: one session applies each batch as soon as it is there, and takes over from the one that does so now",
    )  # fmt: skip
    parser.add_argument(
        "--owner", default="", help="who it is, for logs and for whoever wants to know what it has done; with --run-for by default machine and process",
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
