"""Tables of targets that lack changes for longer than a limit, by the state tables alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_provider_cdc.core.model.metric_samples import StoredSeries
from airflow_provider_cdc.core.spi.state_records import ConnectorRecord

if TYPE_CHECKING:
    from airflow_provider_cdc.state.state_store import StateStore

LAGGING = "apply.LaggingTableLastBatch"
"""Gauge of a topic: the last batch of its table, where that is behind the other tables of the target."""


@dataclass(frozen=True, slots=True)
class LateTables:
    """The tables of one target that lack changes for longer than a limit.

    :param target: the name of the target
    :param topic: of the table that lacks changes for the longest time
    :param since: when the oldest change that it lacks was captured
    :param others: number of further such tables
    """

    target: str
    topic: str
    since: datetime
    others: int


def find_late_tables(
    store: StateStore, record: ConnectorRecord, series: Iterable[StoredSeries], before: datetime
) -> list[LateTables]:
    """Return the targets of a connector with tables that lack changes captured before a moment.

    A table without waiting changes is never late, however long ago its last change was. It reads the batches that a target has not applied and that
    are old enough, so that it reads nothing if all is well.

    :param series: metrics of the connector and of its topics
    """
    by_producer: dict[str, list[StoredSeries]] = {}
    for stored in series:
        if stored.producer.startswith("apply"):
            by_producer.setdefault(stored.producer, []).append(stored)
    late = (_late_tables(store, record, target, before) for target in by_producer.values())
    return [tables for tables in late if tables is not None]


def _late_tables(
    store: StateStore, record: ConnectorRecord, series: Sequence[StoredSeries], before: datetime
) -> LateTables | None:
    """Return the late tables of one target.

    :param series: of the target, and of its topics
    """
    whole = next((stored for stored in series if not stored.topic and "apply.LastBatch" in stored.gauges), None)
    if whole is None:
        return None
    reached = int(whole.gauges["apply.LastBatch"])
    # every report has all lagging tables of its time: an older one is about a table that has caught up
    lagging = {s.topic: int(s.gauges[LAGGING]) for s in series if LAGGING in s.gauges and s.at == whole.at}
    first = min([reached, *lagging.values()])
    if first >= record.last_batch:
        return None
    since: dict[str, datetime] = {}
    for batch in store.list_batches_between(record.connector, after=first, before=before):
        for topic in batch.topics:
            if batch.batch > lagging.get(topic, reached):
                since.setdefault(topic, batch.created_at)
    if not since:
        return None
    topic = min(since, key=lambda name: (since[name], name))
    return LateTables(target_name_of(whole), topic, since[topic], len(since) - 1)


def target_name_of(series: StoredSeries) -> str:
    """Return the name of the target of an apply; its kind and a short name of its location if it has not run since an upgrade."""
    return series.texts.get("apply.TargetName") or f"{series.tags.get('target', '')} ({series.tags.get('place', '')})"
