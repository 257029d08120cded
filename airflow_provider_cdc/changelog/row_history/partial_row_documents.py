"""The documents of a row's events, where these have only the changes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from airflow_provider_cdc.changelog.reading.partial_document_updates import DocumentBuilder, DocumentEvents
from airflow_provider_cdc.changelog.row_history.key_event_reader import RowEvent
from airflow_provider_cdc.core.model.table_schema import TableSchema, arrow_type
from airflow_provider_cdc.core.spi.partial_update_applier import partial_updates


def follows_documents(schema: TableSchema) -> bool:
    """Check whether events of a table may have only the changes of a document."""
    return schema.documents is not None and schema.documents.updates is not None


def with_documents(events: Sequence[RowEvent]) -> list[RowEvent]:
    """Return the events of one row with their documents.

    One whose document does not follow from those before it stays as it is.

    :param events: in their order
    """
    documents = events[-1].schema.documents if events else None
    if documents is None or documents.updates is None:
        return list(events)
    body, columns = documents.body, documents.columns
    lacks = np.array([event.op == "u" and body in event.unavailable for event in events], np.bool_)
    if not lacks.any():
        return list(events)
    after, before = ([(getattr(event, name) or {}).get(body) for event in events] for name in ("after", "before"))
    event_columns = {
        c.name: pa.array([event.said.get(c.name) for event in events], arrow_type(c.type)) for c in columns
    }
    changes = DocumentEvents(
        [0] * len(events), np.array([event.op for event in events], object), np.array([event.seq for event in events]),
        lacks, pa.array(after, pa.string()), pa.array(before, pa.string()), event_columns,
    )  # fmt: skip
    bodies, unknown = DocumentBuilder(partial_updates(documents.updates)).apply_events(changes)
    return [
        replace(
            event, after={**(event.after or {}), body: bodies[at].as_py()},
            unavailable=tuple(name for name in event.unavailable if name != body),
        )
        if lacks[at] and not unknown[at] else event
        for at, event in enumerate(events)
    ]  # fmt: skip
