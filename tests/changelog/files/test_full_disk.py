"""A change log on a real disk that is full: one error with a name, and the next run captures the rest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider_cdc.connector import open_capture
from airflow_provider_cdc.core.errors import StorageFull
from tests.support.airflow.airflow_connector import make_shop
from tests.support.processes.small_disk import fill_disk, mount_small_disk


def test_a_capture_on_a_full_disk_names_it_and_loses_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shop = make_shop(monkeypatch, tmp_path, "full change log")
    with mount_small_disk(tmp_path / "disk", "1m") as disk:
        definition = replace(shop.definition, changelog=str(disk / "changelog"))

        def run() -> None:
            url = f"sqlite:///{tmp_path}/state.db"
            with open_capture(definition, url, secrets={"memory.database": "full change log"}) as capture:
                capture.run()

        run()
        filler = fill_disk(disk)
        shop.order(1)
        with pytest.raises(StorageFull, match=r"is written \(No space left on device\)") as caught:
            run()
        assert str(disk) in str(caught.value.where)
        assert "offset was not moved" in str(caught.value.safe)
        assert "airflow cdc maintain shop --only retention --now" in str(caught.value.remedy)
        filler.unlink()
        run()
        assert shop.store.list_batches("shop")[0].events == 1
    shop.store.close()
