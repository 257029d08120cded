"""Totals that a run keeps of its batches."""

from __future__ import annotations

import pickle

from airflow_provider_cdc.core.writing.committed_totals import BatchTotals, FileTotals
from tests.support.change_log.manifests import SCHEMA, manifest


def test_what_a_run_keeps_does_not_grow_with_its_batches() -> None:
    batch_totals = BatchTotals()
    batch_totals.add_batch(manifest(1000))
    before = len(pickle.dumps(batch_totals))
    for batch in range(1001, 2000):
        batch_totals.add_batch(manifest(batch))
    assert len(pickle.dumps(batch_totals)) < before + 32  # longer numbers
    assert (batch_totals.batches, batch_totals.events) == (range(1000, 2000), 2000)
    assert batch_totals.files == {"p.shop.t": FileTotals(2000, 100_000, 1000)}


def test_the_schema_is_that_of_the_newest_version() -> None:
    batch_totals = BatchTotals()
    newer = {number: SCHEMA.model_copy(update={"version": int(number)}) for number in ("9", "10")}
    batch_totals.add_batch(manifest(1, schemas={"p.shop.t": newer}))
    batch_totals.add_batch(manifest(2, events=0, schemas={}))
    assert batch_totals.schemas["p.shop.t"].version == 10
    assert list(batch_totals.batches) == [1, 2]
