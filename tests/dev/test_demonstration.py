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
from dev.benchmarks.lake_changes import Changes, SourceTable
from dev.demonstration import oracle as demonstrated
from dev.demonstration.__main__ import KITS
from dev.demonstration.freshness import lags
from dev.demonstration.oracle import OracleKit
from dev.demonstration.writer import LiveWriter
from tests.support.connectors import Connector


@pytest.fixture
def kit(monkeypatch: pytest.MonkeyPatch) -> Iterator[OracleKit]:
    """With few rows, which the application meets often."""
    for name in ("CUSTOMERS", "PRODUCTS", "ORDERS"):
        monkeypatch.setattr(demonstrated, name, 40)
    kit = OracleKit()
    with kit.server:
        yield kit


def test_what_the_application_does_on_oracle_is_captured_without_a_difference(kit: OracleKit, tmp_path: Path) -> None:
    kit.fill(random.Random(1))
    connector = Connector(tmp_path, "oracle", dict(kit.properties), kit.secrets())
    connector.capture()
    writer = LiveWriter(kit, pause_s=0)
    with kit.connect() as connection, connection.cursor() as cursor:
        cursor.execute(kit.new_column)
        for number in range(150):
            if number == 75:
                kit.switch_log()
                connector.capture()
            writer.transaction(connection, cursor)
    did = writer.done
    assert all(did[what] for what in ("inserts", "updates", "deletes", "key changes", "rolled back"))
    assert did["rolled back to a savepoint"]
    connector.capture()
    for table in ("CUSTOMERS", "PRODUCTS", "ORDERS"):
        reference = Connector(
            tmp_path / table, "oracle", {**kit.properties, "snapshot.mode": "initial_only"}, kit.secrets()
        )
        reference.capture()
        wanted = reference.rows(f"INVENTORY.{table}")
        found = connector.rows(f"INVENTORY.{table}")
        assert len(wanted) > 30
        assert sorted(found, key=lambda row: row["ID"]) == sorted(wanted, key=lambda row: row["ID"]), table


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
    found = lags(changes.changelog, "shop", source.topic, log.parent, 2)
    assert found.seconds.tolist() == pytest.approx([30.0] * 7 + [40.0] * 2, abs=2)
    assert found.texts() == (f"{found.seconds[0]:.1f} s", f"{found.seconds[-1]:.1f} s")
    assert lags(changes.changelog, "shop", source.topic, log.parent, 5).texts() == ("–", "–")


def test_the_demonstration_on_oracle_says_that_it_is_none() -> None:
    assert "Nothing here has run against an Oracle database." in OracleKit.note


@pytest.mark.parametrize("words", [["--source"], ["--source", "db3"], ["--sauce", "oracle"]])
def test_words_that_it_does_not_know_end_it_before_anything_is_fetched(words: list[str]) -> None:
    ended = subprocess.run([paths.ROOT / "dev" / "demo", *words], capture_output=True, text=True)
    assert ended.returncode == 2
    assert "mariadb or oracle" in ended.stderr
    assert ended.stdout == ""
