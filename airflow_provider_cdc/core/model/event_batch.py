"""Change events of one topic, as they go from the envelope into a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_cdc.core.model.table_schema import TableSchema

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(slots=True)
class EventBatch:
    """Change events of one topic under one table schema, in ``seq`` order.

    :param schema: the captured schema (see :meth:`Filters.select <airflow_provider_cdc.core.config.capture_filters.Filters.select_columns>`)
    :param counts: operation letter → number of events
    :param unavailable: columns whose value some event does not have, in either image
    :param unavailable_after: columns whose value some event does not have in its image after
    :param passing: all are of rows that came to a key and left it within one transaction: they say nothing of the key
    :param late: some creates and updates come behind what the log has after them
    """

    topic: str
    schema: TableSchema
    events: pa.RecordBatch
    first_seq: int
    last_seq: int
    counts: dict[str, int]
    unavailable: frozenset[str] = frozenset()
    unavailable_after: frozenset[str] = frozenset()
    passing: bool = False
    late: bool = False
