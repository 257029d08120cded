"""The driver's fetch of a change table, and nothing else: ``python -m dev.benchmarks.programs.run_db2_fetch FILE``. The last line of stdout is a JSON object."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def main() -> int:
    given = json.loads(Path(sys.argv[1]).read_text())
    from airflow_provider_cdc.core.model.table_schema import TableId
    from airflow_provider_cdc.sources.db2.config import Db2Config
    from airflow_provider_cdc.sources.db2.connect import connect_database
    from airflow_provider_cdc.sources.db2.log.change_table_layout import layout_of
    from airflow_provider_cdc.sources.db2.log.change_table_reader import FETCH_ROWS
    from airflow_provider_cdc.sources.db2.schema.catalog import Db2CatalogReader

    config = Db2Config.parse(given["properties"])
    connection = connect_database(config)
    catalog = Db2CatalogReader(connection, config)
    table = TableId(catalog=config.catalog_name, namespace=given["namespace"], name=given["table"])
    registered = catalog.list_registrations()[table]
    change = TableId(catalog=config.catalog_name, namespace=registered.change_owner, name=registered.change_table)
    layout = layout_of(
        catalog.read_registered_schemas({table: registered})[table],
        registered,
        catalog.read_table_schemas([change])[change],
        config,
    )
    first, last = bytes.fromhex(given["first"]), bytes.fromhex(given["last"])
    sql, parameters = layout.query(first[:8], last)
    started, cpu, rows = time.perf_counter(), time.process_time(), 0
    with connection.open_cursor(sql, *parameters, size=FETCH_ROWS) as cursor:
        while batch := cursor.fetch_rows(FETCH_ROWS):
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
