"""Work of a child process that may open few files: batches of many topics. ``python -m tests.support.processes.many_topics WHAT FOLDER``.

It prints what it has done as JSON, ``peak`` being the most memory that the process had, in bytes.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

TABLES = 300
FILES = 128


def writer(folder: str) -> dict[str, Any]:
    """A batch whose topics take turns, with row groups so small that each of them has a file early on."""
    from airflow_provider_cdc.changelog.files import parquet_writer as module
    from airflow_provider_cdc.changelog.files.storage import Storage

    module.ROW_GROUP_ROWS = 20
    written = module.ParquetBatchWriter(Storage(folder), ("c", "data", "1"), "w")
    seq = 0
    for _turn in range(3):
        for table in range(TABLES):
            written.write(events(table, seq, 30))
            seq += 30
    files = written.finish_files()
    return {"files": [f.model_dump() for f in files], "rows": sum(f.rows for f in files)}


def memory(folder: str) -> dict[str, Any]:
    """600 MB in one transaction: each topic has less than a row group."""
    from airflow_provider_cdc.changelog.files.parquet_writer import ParquetBatchWriter
    from airflow_provider_cdc.changelog.files.storage import Storage

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    written = ParquetBatchWriter(Storage(folder), ("c", "data", "1"), "w")
    written.set_savepoint()
    seq = 0
    for _turn in range(20):
        for table in range(TABLES):
            written.write(events(table, seq, 10, width=10_000))
            seq += 10
    files = written.finish_files()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"files": len(files), "rows": sum(f.rows for f in files), "grown": (peak - before) * 1024}


def capture(folder: str) -> dict[str, Any]:
    """A snapshot of all tables, changes of all of them, and the events as they are printed."""
    from airflow_provider_cdc.changelog.debezium.record_renderer import DebeziumRenderer
    from airflow_provider_cdc.sources.memory.database import MemoryDatabase
    from tests.support.connectors import memory_connector
    from tests.support.workloads.small_tables import KEYED, insert

    db = MemoryDatabase("many")
    tables = [f"shop.t{n:03d}" for n in range(TABLES)]
    for table in tables:
        db.create_table(table, KEYED, key=("id",))
        insert(db, table, 1)
    connector = memory_connector(db, Path(folder))
    results = [connector.capture()]
    for i in (2, 3):
        for table in tables:
            insert(db, table, i)
    results.append(connector.capture())
    records = DebeziumRenderer(connector.changelog, "test").render_records(after=results[0].batches[-1])
    return {
        "events": [r.events for r in results],
        "topics": [len(r.topics) for r in results],
        "records": [[r.topic, r.value["after"]["id"]] for r in records if r.value],
    }


def events(table: int, seq: int, rows: int, width: int = 1) -> Any:
    from airflow_provider_cdc.core.model.event_batch import EventBatch
    from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema

    columns = (Column(name="id", type="int64"), Column(name="v", type="binary"))
    schema = TableSchema(id=TableId(namespace="s", name=f"t{table}"), columns=columns, key=("id",), version=1)
    numbers = np.arange(seq + 1, seq + 1 + rows)
    data = np.random.default_rng(seq).bytes(rows * width)
    offsets = pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * width)
    values = pa.Array.from_buffers(pa.binary(), rows, [None, offsets, pa.py_buffer(data)])
    row = pa.StructArray.from_arrays([pa.array(numbers), values], names=["id", "v"])
    events = pa.RecordBatch.from_arrays([pa.array(numbers), row], names=["seq", "after"])
    return EventBatch(f"p.s.t{table}", schema, events, seq + 1, seq + rows, {"c": rows})


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    print(json.dumps(globals()[sys.argv[1]](sys.argv[2])))
