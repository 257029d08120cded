"""A connector from all sides: its tables, its properties with where each comes from, its metrics over its runs."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.config.secret_redaction import is_secret_name, strip_credentials
from airflow_provider_cdc.core.config.topic_names import TopicNames
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.core.model.schema_history import SchemaHistory
from airflow_provider_cdc.services.connectors.connector_handle import access_of
from airflow_provider_cdc.services.dashboards.connector_page_models import (
    ComparisonSummary,
    PropertySummary,
    TableSummary,
    TableTarget,
)
from airflow_provider_cdc.sources import config_class

if TYPE_CHECKING:
    from airflow_provider_cdc.core.model.metric_samples import StoredSeries
    from airflow_provider_cdc.core.model.table_schema import TableId
    from airflow_provider_cdc.core.spi.state_records import ConnectorRecord
    from airflow_provider_cdc.state.state_store import StateStore


def tables_of(store: StateStore, record: ConnectorRecord) -> list[TableSummary]:
    """List every table that a connector has a schema of, with the metrics of its topic; by a fixed number of queries."""
    history = SchemaHistory.from_stored(store.load_schemas(record.connector))
    names = map_table_topics(record, history.current_tables)
    series: dict[str, list[StoredSeries]] = {}
    for stored in store.metrics.load_series(record.connector):
        if stored.topic:
            series.setdefault(stored.topic, []).append(stored)
    snapshot = record.offset.snapshot if record.offset else None
    scans = {scan.table: scan.rows for scan in record.offset.incremental.scans} if record.offset else {}
    summaries = []
    for id_ in history.current_tables:
        schema, topic, name = history.find_schema(id_), names.get(id_), str(id_)
        assert schema is not None
        measured = series.get(topic or "", [])
        captured = next((stored for stored in measured if stored.producer == "capture"), None)
        summaries.append(
            TableSummary(
                table=id_.full_name, topic=topic, version=schema.version, columns=len(schema.columns), key=list(schema.key),
                events=0 if captured is None else int(captured.counters.get("topic.TotalNumberOfEventsCaptured", 0)),
                rows_read=0 if captured is None else int(sum(v for k, v in captured.counters.items() if k.endswith(".RowsScanned"))),
                pending=snapshot is not None and name in snapshot.pending, chunk_rows=scans.get(name),
                targets=[_target(stored) for stored in measured if stored.producer.startswith("apply ")],
                comparisons=[_comparison(stored) for stored in measured if "verify.TableDiffers" in stored.gauges],
            )
        )  # fmt: skip
    return summaries


def map_table_topics(record: ConnectorRecord, tables: Iterable[TableId]) -> dict[TableId, str]:
    """Table → its topic; empty where the definition is not recorded."""
    registration = record.registration
    if registration is None:
        return {}
    topic_properties = {
        name: registration.properties[name]
        for name in ("topic.prefix", "topic.delimiter")
        if name in registration.properties
    }
    topic_names = TopicNames(ConnectorConfig.parse({"topic.prefix": record.connector, **topic_properties}))
    return {id_: topic_names.resolve_topic(id_) for id_ in tables}


def _target(series: StoredSeries) -> TableTarget:
    fresh = series.histograms.get("apply.FreshnessInSeconds")
    return TableTarget(
        target=series.tags.get("target", ""), place=series.tags.get("place", ""),
        events=int(series.counters.get("apply.TotalNumberOfEventsApplied", 0)),
        freshness_p50_s=None if fresh is None else fresh.estimate_quantile(0.5),
        freshness_p95_s=None if fresh is None else fresh.estimate_quantile(0.95), at=series.at,
    )  # fmt: skip


def _comparison(series: StoredSeries) -> ComparisonSummary:
    return ComparisonSummary(
        target=series.tags.get("target", ""), place=series.tags.get("place", ""), equal=not series.gauges["verify.TableDiffers"],
        missing=int(series.gauges.get("verify.RowsMissing", 0)), surplus=int(series.gauges.get("verify.RowsSurplus", 0)),
        different=int(series.gauges.get("verify.RowsDifferent", 0)), at=series.at,
    )  # fmt: skip


def properties_of(record: ConnectorRecord) -> list[PropertySummary]:
    """Return every property of a connector's kind of source, those that a user has set first.

    Properties that the Airflow connection sets are named and never shown: users who may see the connector may lack the right to see the connection.
    """
    access = access_of(record)
    if access is None:
        return []
    config = config_class(access.definition.source)
    definition_properties = access.definition.properties
    try:
        by_connection = access.resolve_properties()
    except CdcError:  # it was renamed: properties of the definition are shown all the same
        by_connection = {}
    lines = [
        _line(str(f.alias), f.description or "", _default(f), definition_properties, by_connection)
        for f in config.model_fields.values()
    ]
    return sorted(lines, key=lambda line: (line.by == "default", line.name))


def _line(
    name: str,
    description: str,
    default: Any,
    definition_properties: Mapping[str, Any],
    by_connection: Mapping[str, Any],
) -> PropertySummary:
    secret = is_secret_name(name)
    if name in by_connection:
        return PropertySummary(name=name, description=description, by="connection", value=None, secret=secret)
    if name in definition_properties:
        value = None if secret else strip_credentials(name, definition_properties[name])
        return PropertySummary(name=name, description=description, by="definition", value=value, secret=secret)
    return PropertySummary(name=name, description=description, by="default", value=default, secret=secret)


def _default(field: Any) -> Any:
    value = field.get_default(call_default_factory=True) if not field.is_required() else None
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    return [str(item) for item in value] if isinstance(value, (list, tuple, set, frozenset)) else str(value)


__all__ = ["map_table_topics", "properties_of", "tables_of"]
