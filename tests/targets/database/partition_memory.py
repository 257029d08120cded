"""Writes one partition of staged rows in a separate process: ``python -m tests.targets.database.partition_memory URL FOLDER ROWS`` prints in MB what its rows are as Arrow
has them, what the process had before, and the most that it had meanwhile."""

from __future__ import annotations

import itertools
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from airflow_provider_cdc.changelog.reading.pending_batches import BatchesByTopic
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.database.config import EQUAL, DatabaseTargetConfig
from airflow_provider_cdc.targets.database.dialects import load_dialect
from airflow_provider_cdc.targets.database.parallel.merged_key_events import DELETED, LEFT_OUT, RECREATED, SEQ
from airflow_provider_cdc.targets.database.parallel.staging_workers import (
    ShareSummary,
    StagingRun,
    StagingWork,
    TopicStaging,
    _packed,
    write_partition,
)
from airflow_provider_cdc.targets.database.schema.target_table import table_of
from tests.support.connectors import memory_connector

_COLUMNS = {"id": "int64!", "customer": "string", "quantity": "int32", "price": "double", "note": "string"}
_EACH = 20_000


def main(url: str, folder: Path, rows: int) -> None:
    work = _work(url, folder)
    write_partition(
        work, 0, 0, [*itertools.islice(_messages(_EACH), 1), ShareSummary(_EACH)]
    )  # what is loaded once is loaded
    before, ended = _memory(), threading.Event()
    most = [before]

    def watch() -> None:
        while not ended.wait(0.005):
            most[0] = max(most[0], _memory())

    watching = threading.Thread(target=watch)
    watching.start()
    part = write_partition(work, 0, 1, itertools.chain(_messages(rows), [ShareSummary(rows)]))
    ended.set()
    watching.join()
    assert [one.rows for one in part.tables] == [rows], part.why_not
    arrow = sum(len(message) for message in _messages(rows)) / 1e6
    print(json.dumps({"arrow": arrow, "before": before, "most": most[0]}))


def _work(url: str, folder: Path) -> StagingWork:
    source = MemoryDatabase(str(folder))
    source.create_table("s.t", _COLUMNS, key=("id",))
    with source.transaction() as t:
        t.insert("s.t", {"id": 1})
    connector = memory_connector(source, folder, topic_prefix="p")
    connector.capture()
    contents = [manifest.batch_contents for manifest in connector.changelog.read_manifests(connector.name)]
    pending = BatchesByTopic(connector.changelog, contents).merge_parts("p.s.t")
    assert pending is not None
    config = DatabaseTargetConfig.parse({**EQUAL, "connection.url": url})
    topic = TopicStaging(pending, table_of("p.s.t", pending.schema, config, load_dialect("postgresql")()), 0, 0, 1)
    return StagingWork(StagingRun("00000000", 0, "abcdef"), connector.name, "", {}, config, {"p.s.t": topic})


def _messages(rows: int) -> Iterator[bytes]:
    for first in range(0, rows, _EACH):
        ids = np.arange(first, min(first + _EACH, rows))
        yield _packed(
            pa.table(
                {
                    "id": ids,
                    "customer": [f"customer number {n % 997}" for n in ids],
                    "quantity": pa.array(ids % 100, pa.int32()),
                    "price": ids / 7,
                    "note": [f"a note on {n} that is a bit longer" for n in ids],
                    SEQ: ids + 1,
                    DELETED: np.zeros(len(ids), bool),
                    RECREATED: np.zeros(len(ids), bool),
                    LEFT_OUT: [""] * len(ids),
                }
            )
        )


def _memory() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
