"""The delay of changes from the source's commit to a Delta table, by the change log and the table's own log."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.files.parquet_writer import COMMITTED


@dataclass(frozen=True, slots=True)
class FreshnessLags:
    """The delays of the events of a table.

    :param seconds: delay of each event; a source that logs whole seconds adds up to one
    """

    seconds: np.ndarray[tuple[int], np.dtype[np.float64]]

    def texts(self) -> tuple[str, str]:
        """Format the median and the 95th percentile of the delays."""
        if not len(self.seconds):
            return "–", "–"
        half, most = np.percentile(self.seconds, (50, 95))
        return f"{half:.1f} s", f"{most:.1f} s"


def compute_lags(changelog: ChangeLog, connector: str, topic: str, table: Path, first: int) -> FreshnessLags:
    """The events of a topic, in the batches from ``first`` on."""
    visible = _visible(table, f":{topic}")
    found = [np.empty(0)]
    for manifest in changelog.read_manifests(connector, after=first - 1):
        at = next((at for batch, at in visible if batch >= manifest.batch), None)
        for file in manifest.files:
            if file.topic == topic and at is not None:
                with changelog.open_file(connector, file) as opened:
                    committed = pq.ParquetFile(opened).read(columns=[COMMITTED])["source"].combine_chunks()
                found.append(at - pa.StructArray.field(committed, "ts_ms").to_numpy(zero_copy_only=False) / 1000)
    return FreshnessLags(np.concatenate(found))


def _visible(table: Path, ending: str) -> list[tuple[int, float]]:
    """The last batch of each commit, and when the commit was there."""
    found = []
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for action in map(json.loads, commit.read_text().splitlines()):
            if action.get("txn", {}).get("appId", "").partition("@")[0].endswith(ending):
                found.append((int(action["txn"]["version"]), commit.stat().st_mtime))
    return found
