"""Command line arguments of the job that compares tables with their source."""

from __future__ import annotations

import argparse
from pathlib import Path


def parse_arguments(arguments: list[str] | None, description: str | None) -> argparse.Namespace:
    """Parse the arguments of ``verify_tables.py``.

    :param description: beginning of its help
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--changelog", required=True, help="folder or object store prefix of the change log of the reference"
    )
    parser.add_argument(
        "--connector",
        required=True,
        help="name of the connector of the reference; with --plan, of the connector of the tables",
    )
    parser.add_argument(
        "--location", required=True, help="location of the tables, for example /lake/{database}/{table}"
    )
    parser.add_argument("--tables-of", metavar="CONNECTOR", help="value of {connector} in the location")
    parser.add_argument(
        "--applied", default="", metavar="CHANGELOG", help="without --plan: the change log of the connector of the tables; the report of its last apply contains the rules and routes"
    )  # fmt: skip
    parser.add_argument("--target", default="delta", help="table format: delta (default) or iceberg")
    parser.add_argument("--threads", type=int, default=4, help="number of tables to verify at the same time")
    parser.add_argument(
        "--plan", action="store_true", help="use the verification plan in the change log, which airflow cdc verify writes: capture and apply may continue meanwhile"
    )  # fmt: skip
    parser.add_argument(
        "--values", action="store_true", help="show values of rows that differ; they may be personal data"
    )
    parser.add_argument(
        "--keys", default="", metavar="FOLDER", help="write the keys of rows that differ to this folder, as Parquet, with a subfolder for each topic"
    )  # fmt: skip
    parser.add_argument(
        "--rules", default="", help="table rules of the apply, as JSON or YAML, or a file with them (default: the rules of the last apply, if known)"
    )  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to this file")
    return parser.parse_args(arguments)
