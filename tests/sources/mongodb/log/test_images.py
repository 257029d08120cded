"""Images of documents that a collection does not record, beside collections that do."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from airflow_provider_cdc.core.errors import UnreadableValue
from airflow_provider_cdc.core.spi.source import Finding
from airflow_provider_cdc.sources.mongodb.source import MongoDbSource
from tests.sources.mongodb.log.test_stream import IMAGES, start_connector
from tests.support.signals import signal_state, snapshot
from tests.support.sources.mongodb.mongodb_connectors import mongodb_connector
from tests.support.workloads.small_tables import operations

PRE = {"capture_mode": "change_streams_with_pre_image"}
POST = {"capture_mode_full_update_type": "post_image"}
BOTH = {"capture_mode": "change_streams_update_full_with_pre_image", **POST}


@pytest.mark.parametrize("mode", [PRE, POST, BOTH], ids=["before", "after", "both"])
def test_a_collection_without_images_is_stopped_alone(
    uri: str, tmp_path: Path, database: Any, mode: dict[str, str]
) -> None:
    orders, notes = database.create_collection("orders", **IMAGES), database.notes
    connector = start_connector(uri, tmp_path, database, batch_max_ms=100, **mode)
    connector.replay.partial = True
    check = MongoDbSource.check_prerequisites

    def check_and_write(source: MongoDbSource) -> list[Finding]:
        """The check of a run refuses a collection that it finds without images."""
        found = check(source)
        for collection in (orders, notes, orders):
            collection.insert_one({"n": 1})
            collection.update_one({}, {"$inc": {"n": 1}})
        return found

    def has_stopped() -> bool:
        offset = connector.store.load_offset("test").offset
        return bool(offset and offset.stopped and len(connector.documents(f"{database.name}.orders")) == 2)

    with (
        patch.object(MongoDbSource, "check_prerequisites", check_and_write),
        pytest.raises(UnreadableValue, match=f"1 table is stopped.*{database.name}.notes has no image"),
    ):
        connector.capture(run_for_s=60, until=has_stopped)
    offset = connector.store.load_offset("test").offset
    assert list(offset.stopped) == [f"{database.name}.notes"]
    assert 'collMod: "notes"' in str(offset.stopped)


def test_a_signalling_collection_needs_no_images(uri: str, tmp_path: Path, database: Any) -> None:
    """Watermarks are deleted there: the stream does not end at such an event."""
    orders = database.create_collection("orders", **IMAGES)
    orders.insert_many([{"_id": n} for n in range(25)])
    database.create_collection("signals")
    connector = mongodb_connector(
        uri, tmp_path, collection_include_list=rf"{database.name}\.orders", signal_data_collection=f"{database.name}.signals",
        incremental_snapshot_chunk_size=10, snapshot_mode="no_data", incremental_snapshot_watermarking_strategy="insert_delete", **BOTH,
    )  # fmt: skip
    connector.replay.partial = True
    connector.capture()
    number = snapshot(connector, f"{database.name}.orders")
    connector.capture()
    orders.update_one({"_id": 1}, {"$set": {"n": 1}})
    assert operations(connector, connector.capture()) == {"orders": {"u": 1}}
    assert signal_state(connector, number)[0] == "done"
    assert not connector.store.load_offset("test").offset.stopped
