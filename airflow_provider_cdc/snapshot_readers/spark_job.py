"""The Spark job of a snapshot: ``spark-submit read_tables.py --changelog … --connector … --source … --snapshot … --readers …``.

Each task of the job is a reader, until the capture ends the snapshot. The environment variable ``CDC_SOURCE_PROPERTIES`` has the properties from
the connection to the source as a JSON object, because they include its password; executors get them with the code of their tasks.

Exit status: 0 the snapshot has ended, 1 a reader has failed, 2 the arguments cannot be used.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from typing import Any

from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import CdcError, ConfigError
from airflow_provider_cdc.snapshot_readers.table_reader import ReaderSettings, run_reader

SOURCE_PROPERTIES = "CDC_SOURCE_PROPERTIES"
"""Environment variable with the properties from the connection to the source as JSON."""
STORAGE_OPTIONS = "CDC_STORAGE_OPTIONS"
"""Environment variable with the options of the change log's storage as JSON."""


def main(arguments: list[str] | None = None) -> int:
    from pyspark import SparkConf, SparkContext

    args = _arguments(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    try:
        settings = ReaderSettings(
            args.changelog, args.connector, args.source, args.snapshot,
            _read_object(SOURCE_PROPERTIES, required=True), _read_object(STORAGE_OPTIONS),
        )  # fmt: skip
    except ConfigError as e:
        print(describe_error(e), file=sys.stderr)
        return 2
    conf = (
        SparkConf().setAppName(f"cdc snapshot {args.connector}").setIfMissing("spark.ui.showConsoleProgress", "false")
    )
    # a lost reader does not end the others, which read its chunks. The one that Spark starts in its stead joins
    # the view if that may be joined late, and otherwise ends
    conf.set("spark.task.maxFailures", "1000").set("spark.speculation", "false")
    context = SparkContext.getOrCreate(conf)
    context.setLogLevel("WARN")
    try:
        tasks = context.parallelize(range(args.readers), args.readers)
        results = tasks.map(lambda number: _run_task(settings, number)).collect()
    finally:
        context.stop()
    for number, (rows, error) in enumerate(results):
        print(f"Reader {number}: {error or f'{rows:,} rows'}", file=sys.stderr if error else sys.stdout)
    return 1 if all(error for _, error in results) else 0


def _run_task(settings: ReaderSettings, number: int) -> tuple[int, str]:
    """Run one reader, and return its rows and its error: the failure of one does not end the others."""
    try:
        return run_reader(settings, number), ""
    except CdcError as e:
        return 0, describe_error(e)


def _read_object(variable: str, *, required: bool = False) -> dict[str, Any]:
    """Read a JSON object from the environment.

    :raises ConfigError: there is none
    """
    text = os.environ.get(variable) or ("" if required else "{}")
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise ConfigError(
            f"The environment variable {variable} does not hold a JSON object.",
            safe="Nothing was read or changed.",
            remedy=f"""for example {variable}='{{"database.hostname": "db", "database.user": "cdc", "database.password": "…"}}'""",
        )
    return document


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changelog", required=True, help="folder or object store prefix of the change log")
    parser.add_argument("--connector", required=True)
    parser.add_argument("--source", required=True, help="kind of source, such as mysql")
    parser.add_argument("--snapshot", required=True, metavar="ID", help="id of the snapshot, which the capture makes")
    parser.add_argument("--readers", required=True, type=int, metavar="N", help="number of readers")
    return parser.parse_args(arguments)
