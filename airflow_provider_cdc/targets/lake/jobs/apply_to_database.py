"""Apply a change log to tables of a relational database: ``spark-submit apply_to_database.py --changelog … --connector …``.

The environment variable ``CDC_SINK_PROPERTIES`` has the properties of the target as a JSON object, because they include the password of the database.
The defaults of missing properties make the tables equal to the source. Executors read the change log and fill staging tables; the driver applies the
staged rows in one transaction with the marker.

Exit status: 0 all tables have the last batch, 1 some tables failed (the others have it), 2 the arguments cannot be used.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import CdcError, ConfigError, TerminalError
from airflow_provider_cdc.core.reporting.metrics_monitor import EVERY_S
from airflow_provider_cdc.targets.database.apply.apply_result import DatabaseApplyResult
from airflow_provider_cdc.targets.database.config import EQUAL, DatabaseTargetConfig
from airflow_provider_cdc.targets.database.parallel.staged_parallel_apply import StagedDatabaseApply, StagingSizes
from airflow_provider_cdc.targets.database.target_engine import open_engine
from airflow_provider_cdc.targets.lake.executors.database_sink_executors import build_executor_workers
from airflow_provider_cdc.targets.lake.jobs.apply_arguments import parse_seconds
from airflow_provider_cdc.targets.lake.session import job_logging
from airflow_provider_cdc.targets.lake.session.spark_session import STORAGE_OPTIONS, open_changelog
from airflow_provider_cdc.targets.task_watch import end_with_task

PROPERTIES = "CDC_SINK_PROPERTIES"
"""Environment variable with the properties of the sink as JSON."""


def main(arguments: list[str] | None = None) -> int:
    args = _arguments(arguments)
    job_logging.configure_job_logging()
    result_file = JobResultFile(args.result)
    try:
        _apply(args, result_file)
    except CdcError as e:
        print(describe_error(e), file=sys.stderr)
        result_file.write_final_result({"error": describe_error(e), "terminal": isinstance(e, TerminalError)})
        return 2 if isinstance(e, ConfigError) else 1
    result_file.write_final_result()
    for topic, table in sorted(result_file.done["tables"].items()):
        print(f"{topic}: {sum(table['rows'].values())} events, batches {table['first_batch']} to {table['last_batch']}")
    return 0


class JobResultFile:
    """A file with the result of the job, for the process that has started it.

    It is written from the first moment on, so that it is there if the job is killed.

    :param file: JSON, as of :meth:`airflow_provider_cdc.targets.database.apply.apply_result.DatabaseApplyResult.to_document`, with ``ended``, and with ``error`` and ``terminal`` if it has failed; ``None``: no file is wanted
    """

    def __init__(self, file: Path | None) -> None:
        self._file, self._at = file, 0.0
        self.done: dict[str, Any] = {}

    def write_result(self, done: DatabaseApplyResult, *, at_once: bool = True) -> None:
        """Write the result until now.

        :param at_once: otherwise only if that was not said for a while
        """
        if at_once or time.monotonic() - self._at >= EVERY_S:
            self.done = done.to_document()
            self._write({**self.done, "ended": False})

    def write_final_result(self, more: Mapping[str, Any] | None = None) -> None:
        """Write that the job has ended."""
        self._write({**self.done, **(more or {}), "ended": True})

    def _write(self, document: Mapping[str, Any]) -> None:
        self._at = time.monotonic()
        if self._file is not None:
            new = self._file.with_name(f"{self._file.name}.new")
            new.write_text(json.dumps(document))
            new.replace(self._file)


def _apply(args: argparse.Namespace, result_file: JobResultFile) -> None:
    config = DatabaseTargetConfig.parse({**EQUAL, **_properties()})
    changelog, engine = open_changelog(args.changelog), open_engine(config)
    try:
        spark = _session(f"cdc sink {args.connector}")
        try:
            sink = StagedDatabaseApply(
                engine, config, changelog, args.connector, build_executor_workers(spark),
                sizes=StagingSizes(little=args.staged_from), options=json.loads(os.environ.get(STORAGE_OPTIONS) or "{}"), parallel=spark.sparkContext.defaultParallelism,
                noted=args.noted,
            )  # fmt: skip
            result_file.write_result(sink.done)
            try:
                if args.run_for:
                    sink.apply_continuously(
                        _over(args.run_for, lambda: result_file.write_result(sink.done, at_once=False))
                    )
                else:
                    sink.apply()
            finally:
                result_file.write_result(sink.done)
        finally:
            spark.stop()
    finally:
        engine.dispose()


def _session(name: str) -> SparkSession:
    """Create a session without tables. Settings of the user win."""
    settings = SparkConf().setAppName(name)
    settings.setIfMissing("spark.ui.showConsoleProgress", "false")
    spark = SparkSession(SparkContext.getOrCreate(settings))
    spark.sparkContext.setLogLevel("WARN")
    return spark


def _over(run_for: float, meanwhile: Callable[[], None]) -> Callable[[float], bool]:
    """Return a function that waits, and returns whether the time is over or a signal has ended the job.

    :param meanwhile: action of each call
    """
    ended, until = threading.Event(), time.monotonic() + run_for
    end_with_task(ended.set)

    def over(wait: float) -> bool:
        meanwhile()
        left = until - time.monotonic()
        return ended.wait(max(min(wait, left), 0)) or left <= 0

    return over


def _properties() -> dict[str, Any]:
    """Read the properties of the sink from the environment.

    :raises ConfigError: there are none, or they cannot be read
    """
    try:
        properties: Any = json.loads(os.environ.get(PROPERTIES) or "null")
    except ValueError:
        properties = None
    if not isinstance(properties, dict):
        raise ConfigError(
            f"The environment variable {PROPERTIES} does not hold a JSON object with the properties of the target.",
            safe="Nothing was read or changed.",
            remedy=f"""for example {PROPERTIES}='{{"connection.url": "postgresql://db:5432/shop", "connection.password": "…"}}'""",
        )
    return properties


def _object(text: str) -> dict[str, Any]:
    """Parse a JSON object.

    :raises ValueError: it is no JSON object
    """
    document = json.loads(text)
    if not isinstance(document, dict):
        raise ValueError(text)
    return document


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changelog", required=True, help="folder or object store prefix of the change log")
    parser.add_argument("--connector", required=True)
    parser.add_argument(
        "--run-for",
        metavar="SECONDS",
        type=parse_seconds,
        default=0.0,
        help="keep running for this time, and apply batches as they arrive",
    )
    parser.add_argument(
        "--staged-from", metavar="BYTES", type=int, default=StagingSizes().little,
        help="the driver itself writes tables with fewer bytes of changes",
    )  # fmt: skip
    parser.add_argument(
        "--result", metavar="FILE", type=Path, help="write the result, or the error, to this file as JSON"
    )
    parser.add_argument(
        "--noted", metavar="JSON", type=_object, help="additional entries for the reports, for other programs that connect to the database later; nothing secret"
    )  # fmt: skip
    return parser.parse_args(arguments)
