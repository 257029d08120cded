"""Workers of the staged sink in this process: what Spark's tasks do, one after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import count

from airflow_provider_cdc.targets.database.parallel.staging_workers import (
    FileShare,
    Message,
    StagedPartition,
    StagingWork,
    read_share,
    write_partition,
)

_ATTEMPTS = count()


def in_turn(work: StagingWork, shares: Sequence[FileShare]) -> list[StagedPartition]:
    """Each partition is written twice, and only one of both counts: as after a try whose result was lost."""
    messages: dict[int, list[Message]] = defaultdict(list)
    for share in shares:
        for partition, message in read_share(work, share):
            messages[partition].append(message)
    for partition in range(work.partition_count):
        write_partition(work, partition, next(_ATTEMPTS), messages[partition])
    # in whatever order rows come
    return [write_partition(work, p, next(_ATTEMPTS), reversed(messages[p])) for p in range(work.partition_count)]
