"""The demonstration, but for Airflow and Spark: its tables and its application are captured without a difference."""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev import paths
from dev.benchmarks.load.lake_changes import Changes, SourceTable
from dev.demonstration import db2, mongodb, oracle
from dev.demonstration.__main__ import KITS
from dev.demonstration.db2 import Db2Kit
from dev.demonstration.freshness import compute_lags
from dev.demonstration.kit import Kit
from dev.demonstration.mongodb import MongoDbKit
from dev.demonstration.oracle import OracleKit
from dev.demonstration.writer import LiveWriter
from tests.support.connectors import Connector

NAMES = {
    "mongodb": ("_id", tuple(f"inventory.{name}" for name in ("customers", "products", "orders", "carts", "shipments")))
}
"""The key's column and the tables, where they are not those of the relational ones."""


@pytest.fixture(params=[(oracle, OracleKit), (db2, Db2Kit), (mongodb, MongoDbKit)], ids=["oracle", "db2", "mongodb"])
def kit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kit]:
    """With few rows, which the application meets often."""
    module, kind = request.param
    for name in ("CUSTOMERS", "PRODUCTS", "ORDERS"):
        monkeypatch.setattr(module, name, 40)
    kit: Kit = kind()
    with kit.server:
        yield kit


def test_what_the_application_does_is_captured_without_a_difference(kit: Kit, tmp_path: Path) -> None:
    def capture(connector: Connector) -> None:
        if isinstance(kit, Db2Kit):
            kit.server.catch_up()
        connector.capture()

    kit.fill(random.Random(1))
    connector = Connector(tmp_path, kit.kind, dict(kit.properties), kit.secrets())
    capture(connector)
    writer = LiveWriter(kit, pause_s=0)
    with kit.connect() as connection, connection.cursor() as cursor:
        for statement in kit.new_column:
            cursor.execute(statement)
        for number in range(150):
            if number == 75:
                kit.switch_log()
                capture(connector)
            try:
                writer.transaction(connection, cursor)
            except Exception as error:
                if not kit.begins_again(error):
                    raise
                connection.rollback()
    did = writer.done
    assert all(did[what] for what in ("inserts", "updates", "deletes", "key changes", "rolled back"))
    assert did["rolled back to a savepoint"] or not kit.savepoint
    capture(connector)
    only_read = {**kit.properties, "snapshot.mode": "initial_only"}
    reference = Connector(tmp_path / "reference", kit.kind, only_read, kit.secrets())
    capture(reference)
    id_, tables = NAMES.get(kit.kind, ("ID", ("INVENTORY.CUSTOMERS", "INVENTORY.PRODUCTS", "INVENTORY.ORDERS")))
    for table in tables:
        expected, found = reference.rows(table), connector.rows(table)
        assert len(expected) > 15
        assert sorted(found, key=lambda row: row[id_]) == sorted(expected, key=lambda row: row[id_]), table
    assert kit.kind != "mongodb" or connector.rows("inventory.parcels") == []  # it is called shipments now


def test_every_source_of_the_demonstration_has_its_dag() -> None:
    connectors = (paths.ROOT / "dags" / "inventory.py").read_text()
    for kind, kit in KITS.items():
        text = (paths.ROOT / "dags" / f"{kit.dag}.py").read_text()
        assert f'name="{kit.connector}",\n    source="{kind}"' in connectors
        assert f'conn_id="{kit.conn_id}"' in text


def test_the_lag_of_each_change_is_from_its_commit_to_the_commit_of_the_table(tmp_path: Path) -> None:
    source, changes = SourceTable("orders", 10), Changes(tmp_path, "shop")
    log = tmp_path / "orders" / "_delta_log"
    log.mkdir(parents=True)
    sizes, now = (10, 3, 4, 2), time.time()
    for number, size in enumerate(sizes, start=1):
        changes.commit([(source, source.read() if number == 1 else source.change(size, inserts=0, deletes=0))])
    for version, batch in enumerate((1, 3, 4)):  # batches 2 and 3 in one commit
        commit = log / f"{version:020d}.json"
        commit.write_text(json.dumps({"txn": {"appId": f"cdc:shop:{source.topic}", "version": batch}}) + "\n")
        os.utime(commit, (now + 10 * batch, now + 10 * batch))
    found = compute_lags(changes.changelog, "shop", source.topic, log.parent, 2)
    assert found.seconds.tolist() == pytest.approx([30.0] * 7 + [40.0] * 2, abs=2)
    assert found.texts() == (f"{found.seconds[0]:.1f} s", f"{found.seconds[-1]:.1f} s")
    assert compute_lags(changes.changelog, "shop", source.topic, log.parent, 5).texts() == ("–", "–")


def test_a_demonstration_on_a_stand_in_says_that_it_is_one() -> None:
    assert "Nothing here has run against an Oracle database." in OracleKit.note
    assert "Nothing here has run against a Db2." in Db2Kit.note
    assert "Nothing here has run against a MongoDB." in MongoDbKit.note


@pytest.mark.parametrize("words", [["--source"], ["--source", "db3"], ["--sauce", "oracle"]])
def test_words_that_it_does_not_know_end_it_before_anything_is_fetched(words: list[str]) -> None:
    ended = subprocess.run([paths.ROOT / "dev" / "demo", *words], capture_output=True, text=True)
    assert ended.returncode == 2
    assert "mariadb, oracle, db2 or mongodb" in ended.stderr
    assert ended.stdout == ""
