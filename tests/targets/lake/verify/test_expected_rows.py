"""The rows that a table ought to have at a batch: what the source had at some position, and what was captured since, is what the change log gives."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_cdc.changelog.reading.pending_batches import collect_topics
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import UNKNOWN
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name
from airflow_provider_cdc.targets.lake.verify.expected_rows import build_expected_rows
from airflow_provider_cdc.verify.batches_after_reference import BatchesAfterReference, NotComparable
from airflow_provider_cdc.verify.reference_capture import open_verification
from airflow_provider_cdc.verify.verification_documents import VerificationPlan
from tests.support.connectors import Connector, memory_connector
from tests.support.workloads.memory_work import NAMESPACE, Workload
from tests.targets.lake.lake import Database

pytestmark = pytest.mark.spark
Rows = dict[str, list[dict[str, Any]]]


class RandomConnector:
    """A connector with random work on its source. :attr:`known` has the rows of each table after each batch, by replaying the change log."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.r = random.Random(seed)
        self.database = Database(str(folder))
        sparse = ("note",) if seed % 2 else ()
        self.work = Workload(self.database, ddl=(0.0, 0.08, 0.2)[seed % 3], sparse=sparse)
        self.connector: Connector = memory_connector(self.database, folder, topic_prefix="p")
        self.known: dict[int, Rows] = {}

    def steps(self, number: int) -> None:
        for _ in range(number):
            self.work.step(self.r)

    def capture(self) -> None:
        self.connector.capture()
        replay = self.connector.replay.advance()
        self.known[replay.batch] = {topic: table.all() for topic, table in replay.tables.items()}


def _find_difference(frame: DataFrame, key: tuple[str, ...], names: tuple[str, ...], rows: list[dict[str, Any]]) -> str:
    unknown = F.col(UNKNOWN) if UNKNOWN in frame.columns else F.array().cast("array<string>").alias(UNKNOWN)
    found = frame.select(*map(quote_name, names), unknown).toArrow().to_pylist()
    if not key:
        a = Counter(tuple(row[c] for c in names) for row in found)
        b = Counter(tuple(row[c] for c in names) for row in rows)
        return "" if a == b else f"{a - b} and {b - a}"
    expected = {tuple(row[k] for k in key): row for row in rows}
    assert len(found) == len({tuple(row[k] for k in key) for row in found})
    for row in found:
        other = expected.pop(tuple(row[k] for k in key), None)
        if other is None or any(row[c] != other[c] for c in names if c not in row[UNKNOWN]):
            return f"{row} and {other}"
    return f"nothing and {expected}" if expected else ""


def _check_references(
    spark: SparkSession, world: RandomConnector, scratch: Any, plan: VerificationPlan
) -> Counter[str]:
    done: Counter[str] = Counter()
    for point in plan.references:
        topics = collect_topics(scratch, [one.batch_contents for one in scratch.read_manifests(point.name)])
        since = BatchesAfterReference(
            world.connector.changelog, world.connector.name, point.first, straddles=point.straddles
        )
        for topic in point.topics:
            for last in sorted({*world.known} - set(range(1, since.required_batch)))[-2:]:
                rows = world.known[last].get(topic, [])
                try:
                    expected = build_expected_rows(spark, topics[topic], since, last)
                except NotComparable as e:
                    done[str(e)[:30]] += 1
                    continue
                wrong = _find_difference(expected.rows, expected.schema.key, expected.schema.column_names, rows)
                if wrong:
                    why = since.explain_lag(str(topics[topic].schema.id), last)
                    assert why, (topic, last, point, wrong)
                    done[why] += 1
                else:
                    done["equal"] += 1
    return done


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(n, marks=pytest.mark.long) for n in range(3, 24))])
def test_it_is_what_the_change_log_gives_whatever_happens_before_and_after_the_position(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    world = RandomConnector(tmp_path, seed)
    world.steps(15)
    world.capture()
    world.steps(world.r.choice([0, 12]))

    with open_verification(world.connector.definition(), world.connector.state_url) as verification:
        wait = verification._wait

        def change_meanwhile(*given: Any) -> None:
            world.steps(world.r.choice([0, 10]))
            world.capture()
            world.steps(8)
            world.capture()
            wait(*given)

        verification._wait = change_meanwhile  # type: ignore[method-assign]
        plan = verification.prepare_plan([rf"{NAMESPACE}\..*"])
        done = _check_references(spark, world, verification.scratch, plan)
    assert done["equal"] > 0, done
