"""Comparisons that are killed while they read the source: nothing of the connector is touched, and the next one is right and removes what is left."""

from __future__ import annotations

import hashlib
import shutil
import signal
import sqlite3
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from airflow_provider_cdc.verify.reference_capture import FOLDER, open_verification
from tests.support.connectors import Connector
from tests.support.processes.crash import properties, source
from tests.support.processes.fork import Forks
from tests.support.pytest_runs.sampled import CaseSample

pytestmark = pytest.mark.crash
SEED, STEPS = 8, 12


def belongings(folder: Path) -> tuple[list[str], dict[str, str]]:
    """The connector's state, and its change log."""
    with sqlite3.connect(folder / "state.db") as db:
        state = list(db.iterdump())
    root = folder / "changelog"
    files = (p for p in root.rglob("*") if p.is_file() and p.relative_to(root).parts[0] != FOLDER)
    return state, {str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_a_comparison_killed_at_many_steps_leaves_the_connector_alone_and_the_next_one_is_right(
    forks: Forks, folder: Path, sampled: CaseSample, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = folder / "before"
    database = source(SEED, STEPS)
    connector = Connector(before, "memory", properties())
    connector.capture()
    connector.store.close()
    rows = {str(table): len(database.copy_rows(str(table))) for table in database.read_consistent_view()[1]}
    died: Counter[str] = Counter()
    for n in range(1, 1000, 9):
        place = folder / "run"
        shutil.copytree(before, place)
        (place / "tmp").mkdir()
        known = belongings(place)
        for at in (n, 3 * n):  # the second one meets what the first one has left
            ended = forks.run(
                "tests.support.processes.crash:verification", folder=str(place), seed=SEED, steps=STEPS, at=at
            )
            assert ended.error == "", ended.text
            if at == n and not ended.signal:
                assert len(died) >= 5, died
                return
            died.update([(place / "died").read_text()] if at == n else [])
            assert ended.signal in (0, signal.SIGKILL)
        if n == 1 or sampled.of(n, every=3):
            assert belongings(place) == known
            monkeypatch.setattr(tempfile, "tempdir", str(place / "tmp"))
            again = Connector(place, "memory", properties())
            with open_verification(again.definition(), again.state_url) as verification:
                (point,) = verification.prepare_plan(wait_s=0).references
                manifests = list(verification.scratch.read_manifests(point.name))
                read: Counter[str] = Counter(f.topic for m in manifests for f in m.files for _ in range(f.rows))
                names = {topic: str(schema.id) for topic, schema in verification.schemas.items()}
                assert {name: read[topic] for topic, name in names.items()} == rows
            assert not list((place / "changelog" / FOLDER).iterdir())
            assert not list((place / "tmp").iterdir())
            assert belongings(place) == known
            again.store.close()
        shutil.rmtree(place)
