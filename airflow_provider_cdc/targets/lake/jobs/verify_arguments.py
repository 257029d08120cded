"""Command line arguments of the job that compares tables with their source."""

from __future__ import annotations

import argparse
from pathlib import Path


def parse_arguments(arguments: list[str] | None, description: str | None) -> argparse.Namespace:
    """Parse the arguments of ``verify_tables.py``.

    :param description: what its help begins with
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--changelog", required=True, help="folder or object store prefix of the reference's change log"
    )
    parser.add_argument(
        "--connector", required=True, help="name of the reference's connector; with --plan, whose tables they are"
    )
    parser.add_argument("--location", required=True, help="where tables are, for example /lake/{database}/{table}")
    parser.add_argument("--tables-of", metavar="CONNECTOR", help="fills {connector} in the location")
    parser.add_argument(
        "--applied", default="", metavar="CHANGELOG", help="without --plan: the change log of the tables' connector, whose last apply knows rules and routes"
    )  # fmt: skip
    parser.add_argument("--target", default="delta", help="kind of the tables: delta (default) or iceberg")
    parser.add_argument("--threads", type=int, default=4, help="tables compared at the same time")
    parser.add_argument(
        "--plan", action="store_true", help="the change log has a plan, as airflow cdc verify makes one: nothing has to stand still"
    )  # fmt: skip
    parser.add_argument(
        "--values", action="store_true", help="show values of rows that differ; they may be personal data"
    )
    parser.add_argument(
        "--keys", default="", metavar="FOLDER", help="write the keys of rows that differ there, as Parquet; a folder for each topic"
    )  # fmt: skip
    parser.add_argument(
        "--rules", default="", help="rules of tables that the apply has, as JSON or YAML, or a file with them; those of the last apply, where it is known, if not given"
    )  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to a file")
    return parser.parse_args(arguments)
