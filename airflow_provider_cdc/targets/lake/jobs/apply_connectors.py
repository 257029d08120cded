"""Apply the change logs of several connectors in one Spark session.

The command is ``spark-submit apply_connectors.py --apply … --apply …``. The job applies each connector like ``apply_changes.py``, with a separate
report and separate turns: an apply of one of these connectors alone may run at the same time. A connector that fails does not stop the others; the
job reports it at its end.

Exit status: 0 all tables of all connectors have the last batch, 1 some failed (the others have it), 2 the arguments cannot be used.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark import SparkConf

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import CdcError, ConfigError
from airflow_provider_cdc.targets.lake.formats import load_format
from airflow_provider_cdc.targets.lake.jobs.apply_arguments import parse_seconds, this_job
from airflow_provider_cdc.targets.lake.jobs.apply_changes import at_last_batch
from airflow_provider_cdc.targets.lake.jobs.concurrent_connectors import ConnectorOutcome, ConnectorRunner
from airflow_provider_cdc.targets.lake.jobs.connector_spec import ConnectorSpec, format_names, refuse_twice
from airflow_provider_cdc.targets.lake.session import job_logging
from airflow_provider_cdc.targets.lake.session.spark_session import FAIR, open_spark_session, options_by_connector
from airflow_provider_cdc.targets.task_watch import end_with_task


def main(arguments: list[str] | None = None) -> int:
    args = _arguments(arguments)
    job_logging.configure_job_logging(named=True)
    try:
        load_format(args.target)
        specs = [spec for text in args.apply for spec in ConnectorSpec.parse(text)]
        refuse_twice(spec.connector for spec in specs)
        options = options_by_connector([spec.connector for spec in specs])
        outcomes = _for_a_while(specs, options, args) if args.run_for else _once(specs, options, args)
        _tell(outcomes)
    except CdcError as e:
        print(describe_error(e), file=sys.stderr)
        return 2 if isinstance(e, ConfigError) else 1
    return 0


def _once(
    specs: Sequence[ConnectorSpec], options: Mapping[str, Any], args: argparse.Namespace
) -> list[ConnectorOutcome]:
    todo, failed = [], []
    for spec in specs:
        try:
            if not at_last_batch(ChangeLog(spec.changelog, options.get(spec.connector, {})), spec, args.target):
                todo.append(spec)
        except Exception as e:  # the others are applied; the run fails at its end
            failed.append(ConnectorOutcome(spec.connector, error=e))
    if not todo:
        return failed
    with _session(todo, options, args.target) as connectors:
        return failed + connectors.apply_once(args.owner)


def _for_a_while(
    specs: Sequence[ConnectorSpec], options: Mapping[str, Any], args: argparse.Namespace
) -> list[ConnectorOutcome]:
    with _session(specs, options, args.target) as connectors:
        end_with_task(connectors.stop)
        return connectors.apply_continuously(args.run_for, args.owner or this_job())


@contextlib.contextmanager
def _session(specs: Sequence[ConnectorSpec], options: Mapping[str, Any], target: str) -> Iterator[ConnectorRunner]:
    """Open the connectors in a Spark session that ends with them."""
    spark_conf = SparkConf()
    fair = {key: value for key, value in FAIR.items() if not spark_conf.contains(key)}
    spark = open_spark_session(
        f"cdc apply {format_names([spec.connector for spec in specs])}", load_format(target), extra=fair
    )
    try:
        yield ConnectorRunner(spark, specs, target, options)
    finally:
        spark.stop()


def _tell(outcomes: Sequence[ConnectorOutcome]) -> None:
    """Print the results.

    :raises CdcError: some connectors have failed
    """
    for outcome in outcomes:
        for table in outcome.report.tables if outcome.report else ():
            print(
                f"{outcome.connector}: {table.topic}: {table.event_count} events, batches {table.first_batch} to {table.last_batch}, {table.seconds} s"
            )
    if failed := {outcome.connector: outcome.error for outcome in outcomes if outcome.error is not None}:
        texts = [f"  {name}: " + str(e or repr(e)).replace("\n", "\n    ") for name, e in failed.items()]
        raise CdcError(
            f"{len(failed)} of {len(outcomes)} connectors could not be applied completely:\n" + "\n".join(texts),
            safe="The tables of the other connectors are at their last batches; the change logs keep all batches.",
            remedy="fix the errors above, then run the apply again: each table continues from its last batch",
        )


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--apply", metavar="JSON", action="append", required=True,
        help="one connector to apply, as a JSON object: connector, changelog, location, and if needed profile, writes, tables, threads "
        "(2), adopt and check_crc, with the same meaning as the arguments of apply_changes.py; or a file with such an object or a list of them; may be repeated",
    )  # fmt: skip
    parser.add_argument("--target", default="delta", help="format of all tables: delta (default) or iceberg")
    parser.add_argument(
        "--run-for", metavar="SECONDS", type=parse_seconds, default=0.0,
        help="keep running for this time: the job applies each batch as soon as it exists, and takes over from the current continuous apply of the same tables",
    )  # fmt: skip
    parser.add_argument(
        "--owner", default="", help="name of this run in logs and reports; with --run-for, the machine and process by default",
    )  # fmt: skip
    return parser.parse_args(arguments)
