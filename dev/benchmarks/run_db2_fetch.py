"""The driver's fetch of a change table, and nothing else: ``python -m dev.benchmarks.run_db2_fetch FILE``. The last line of stdout is a JSON object."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def main() -> int:
    given = json.loads(Path(sys.argv[1]).read_text())
    from airflow_provider_cdc.core.model.schema import TableId
    from airflow_provider_cdc.sources.db2.config import Db2Config
    from airflow_provider_cdc.sources.db2.connect import connect
    from airflow_provider_cdc.sources.db2.log.change_layout import layout_of
    from airflow_provider_cdc.sources.db2.log.change_reader import FETCH_ROWS
    from airflow_provider_cdc.sources.db2.schema.catalog import Catalog

    config = Db2Config.parse(given["properties"])
    connection = connect(config)
    catalog = Catalog(connection, config)
    table = TableId(catalog=config.catalog, namespace=given["namespace"], name=given["table"])
    registered = catalog.registrations()[table]
    change = TableId(catalog=config.catalog, namespace=registered.change_owner, name=registered.change_table)
    layout = layout_of(
        catalog.captured({table: registered})[table], registered, catalog.structures([change])[change], config
    )
    first, last = bytes.fromhex(given["first"]), bytes.fromhex(given["last"])
    sql, parameters = layout.query(first[:8], last)
    started, cpu, rows = time.perf_counter(), time.process_time(), 0
    with connection.cursor(sql, *parameters, size=FETCH_ROWS) as cursor:
        while batch := cursor.fetch(FETCH_ROWS):
            rows += len(batch)
    figures: dict[str, Any] = {
        "rows": rows,
        "seconds": round(time.perf_counter() - started, 3),
        "cpu_s": round(time.process_time() - cpu, 3),
    }
    connection.close()
    print(json.dumps(figures), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
