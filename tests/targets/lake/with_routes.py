"""Routes to tables of a catalog: what its tables have to be. As a child process of ``test_routes_catalogs.py``: random work in a catalog that the session is
begun with, two applies at once."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name
from tests.targets.lake.lake import Lake, Row, new_lake
from tests.targets.lake.placement.test_routes import COLUMNS, ODD, PLAIN, RouteWork
from tests.targets.lake.with_catalog import apply, begin

ROUNDS, STEPS = 5, 8


def rules(namespace: str, by: str = "region") -> TableRules:
    """A table for each region; rows without one are in none."""
    step = {"by": by, "location": f"{namespace}.of_{{value}}"}
    return TableRules.parse([{"tables": r"s\.t", "route": step, "otherwise": "drop"}])


def tables(lake: Lake, namespace: str) -> dict[str, list[Row]]:
    """The tables of a namespace as people see them, in a session of their own."""
    spark = lake.spark.newSession()
    spark.conf.set("spark.sql.variable.substitute", "false")
    found: dict[str, list[Row]] = {}
    for row in spark.sql(f"SHOW TABLES IN {namespace}").collect():
        rows = spark.table(f"{namespace}.{quote_name(row.tableName)}").select(*COLUMNS).toArrow().to_pylist()
        found[row.tableName] = sorted(rows, key=repr)
    return found


def check(lake: Lake, namespace: str) -> int:
    """Each row is in the table of its region, and in no other one; returns the number of tables."""
    found = tables(lake, namespace)
    expected: dict[str, list[Row]] = {name: [] for name in found}
    for row in lake.connector.database.copy_rows("s.t"):  # type: ignore[attr-defined]
        if region := row["region"]:
            name = {".": "%2E", "..": "%2E%2E"}.get(region) or region.replace("%", "%25").replace("/", "%2F")
            expected.setdefault(f"of_{name}", []).append({column: row[column] for column in COLUMNS})
    assert found == {name: sorted(rows, key=repr) for name, rows in expected.items()}
    return len(found)


def main(folder: Path, settings: dict[str, str], seed: int) -> None:
    lake = new_lake(begin(settings), folder, "iceberg")
    lake.tables = rules("lake.routed")
    work = RouteWork(lake, seed, regions=(*PLAIN, *ODD, None))
    number = 0
    for _ in range(ROUNDS):
        work.go(STEPS)
        lake.connector.capture()
        with ThreadPoolExecutor(2) as two:
            list(two.map(lambda _: apply(lake, lake.location), range(2)))
        lake.apply()
        number = check(lake, "lake.routed")
    assert lake.apply().tables == []
    print(json.dumps({"tables": number}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3]))
