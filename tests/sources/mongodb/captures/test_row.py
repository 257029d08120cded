"""The story of a document, by its key as events have it, beside the document at the source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bson import Decimal128, Int64, ObjectId

from airflow_provider_cdc.changelog.row_history.row_history_models import RowHistory
from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess
from airflow_provider_cdc.state.state_store import StateStore
from tests.cli.conftest import clean, run
from tests.support.airflow.airflow_connector import connect
from tests.support.signals import signal_state, snapshot
from tests.support.sources.mongodb.mongodb_connectors import mongodb_connector

IDS = {
    "7": 7, '"7"': "7", "7.5": 7.5, '{"$oid": "000000000000000000000001"}': ObjectId("0" * 23 + "1"),
    '{"a": 1,"_id": "é"}': {"a": 1, "_id": "é"}, '{"$numberDecimal": "1.50"}': Decimal128("1.50"), "12": Int64(12),
}  # fmt: skip


def test_a_document_is_found_by_its_key_and_compared_with_the_source(
    uri: str, database: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: Any
) -> None:
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "")
    monkeypatch.setenv("AIRFLOW__CDC__SHOW_ROWS_OF", "shop")
    state = f"sqlite:///{tmp_path}/state.db"
    StateStore(state).create_tables()
    connect(monkeypatch, "shop", conn_type="cdc_mongodb", host=uri)
    connect(monkeypatch, "cdc_state_default", conn_type="cdc_state", password=state)
    properties = {"topic.prefix": "shop", "database.include.list": database.name, "field.exclude.list": "*.*.secret"}
    access = ConnectorAccess(ConnectorDefinition("shop", "mongodb", f"{tmp_path}/changelog", properties), "shop")
    database.orders.insert_many([{"_id": id_, "n": 1, "secret": "x"} for id_ in IDS.values()])

    def capture_once() -> None:
        with access.prepare_capture(owner="test", lease_ttl_s=30, lease_wait_s=30) as capture:
            capture.run()

    def read_row_history(key: str) -> RowHistory:
        clean(capfd)
        run("row", f"{database.name}.orders", key, "--compare", "--json")
        return RowHistory.model_validate_json(capfd.readouterr().out)

    capture_once()
    database.orders.update_one({"_id": 7}, {"$set": {"n": 2}})
    capture_once()
    for key in IDS:
        row_history = read_row_history(key)
        assert row_history.source is not None, key
        assert (row_history.row.state, row_history.source.equal) == ("row", True), key
        assert "secret" not in str(row_history.source.row)
    assert [change.operation for change in read_row_history("7").changes] == ["update", "read"]
    database.orders.update_one({"_id": 7}, {"$set": {"n": 3}})
    database.orders.delete_one({"_id": "7"})
    ahead, gone = read_row_history("7").source, read_row_history('"7"').source
    assert ahead is not None
    assert gone is not None
    assert (ahead.equal, ahead.different) == (False, ["document"])
    assert (gone.equal, gone.row) == (False, None)


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ('{"$oid":"000000000000000000000001"}', '{"$oid": "000000000000000000000001"}'),
        ('{"$numberLong": "99"}', "99"),
        ('"\\u00e9"', '"é"'),
        ('{"a":1,"b":{"$numberInt":"2"}}', '{"a": 1,"b": 2}'),
    ],
)
def test_a_key_that_is_gone_is_deleted_however_a_signal_writes_it(
    uri: str, database: Any, tmp_path: Path, written: str, key: str
) -> None:
    database.orders.insert_many([{"_id": i} for i in range(3)])
    connector = mongodb_connector(uri, tmp_path, database_include_list=database.name)
    connector.capture()
    name = f"{database.name}.orders"
    absent = [{"_id": written}, {"_id": "1"}]
    number = snapshot(
        connector,
        name,
        key_ranges=[{"data-collection": name, "from": {"_id": "0"}, "to": {"_id": "0"}, "absent": absent}],
    )
    connector.capture()
    assert signal_state(connector, number) == ("done", "")
    deleted = [
        row["key"]["_id"]
        for manifest in connector.changelog.read_manifests("test")
        for row in _events(connector, manifest)
        if row["op"] == "d"
    ]
    assert deleted == [key]


def _events(connector: Any, manifest: Any) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    found: list[dict[str, Any]] = []
    for file in manifest.files:
        with connector.changelog.open_file("test", file) as opened:
            found += pq.read_table(opened).select(["op", "key"]).to_pylist()
    return found
