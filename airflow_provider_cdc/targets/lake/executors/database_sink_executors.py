"""Executors as the workers of the relational sink: shares of the change log are read, rows of a key meet in one partition, and each partition is written by one task.

Rows are Arrow streams all the way, so that no value has to be one that Spark has a type for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.targets.database.parallel.staged_parallel_apply import Workers
from airflow_provider_cdc.targets.database.parallel.staging_workers import (
    FileShare,
    Message,
    StagedPartition,
    StagingWork,
    read_share,
    write_partition,
)
from airflow_provider_cdc.targets.lake.executors.executor_packages import lacks_package, ship_driver_code

TASK_BYTES, TASK_FILES = 8 << 20, 50
"""A task reads about so many bytes of change log, or so many files."""
_SHOWN = 2000


def build_executor_workers(spark: SparkSession) -> Workers:
    """Build workers that are tasks of a session.

    Their parameters, secrets of the database among them, are part of the tasks' code: they are in no setting, no log, no command line and on no page of Spark's. The
    tables are sent to them apart from that: Spark writes code that is large (``spark.broadcast.UDFCompressionThreshold``, 1 MB) to the driver's disk.
    """
    context = spark.sparkContext
    ship_driver_code(context)

    def run(work: StagingWork, shares: Sequence[FileShare]) -> list[StagedPartition]:
        from py4j.protocol import Py4JJavaError

        bare, topics = replace(work, topics={}), context.broadcast(dict(work.topics))

        def read(some: Sequence[FileShare]) -> Iterator[tuple[int, Message]]:
            whole = replace(bare, topics=topics.value)
            for share in some:
                yield from read_share(whole, share)

        def write(partition: int, messages: Iterable[tuple[int, Message]]) -> Iterator[StagedPartition]:
            task = TaskContext.get()
            assert task is not None
            whole = replace(bare, topics=topics.value)
            yield write_partition(whole, partition, task.taskAttemptId(), (message for _, message in messages))

        tasks = list(group_small_shares(shares))
        task_shares = context.parallelize(tasks, len(tasks))
        try:
            return (
                task_shares.flatMap(read)
                .partitionBy(work.partition_count, _itself)
                .mapPartitionsWithIndex(write)
                .collect()
            )
        except (Py4JJavaError, PySparkException) as e:
            raise _failed(str(e)) from None
        finally:
            topics.destroy()

    return run


def group_small_shares(shares: Sequence[FileShare]) -> Iterator[list[FileShare]]:
    """Group the shares that each task reads: small files are read together, as a task costs more than they do."""
    some, size = list[FileShare](), 0
    for share in shares:
        some.append(share)
        size += share.file.bytes // share.count
        if size >= TASK_BYTES or len(some) == TASK_FILES:
            yield some
            some, size = [], 0
    if some:
        yield some


def _itself(partition: int) -> int:
    return partition


def _failed(message: str) -> CdcError:
    """Build the error of a failed job from its message, without the places in code."""
    lines = [line for line in message.splitlines() if line.strip() and not line.startswith(("    ", "  File", "\t"))]
    short = "\n".join(lines)[:_SHOWN]
    return lacks_package(message) or CdcError(
        f"Spark tasks failed: {short}",
        safe="The tables contain every batch up to the batch of their marker.",
        remedy="fix the errors above, then run the apply again: it drops the staging tables of the tasks and continues",
    )
