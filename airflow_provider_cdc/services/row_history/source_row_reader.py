"""Reader of the row that the source holds now, by its key as chunks of tables are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.changelog.row_history.row_history_models import CurrentSourceRow, RowHistory

if TYPE_CHECKING:
    from airflow_provider_cdc.changelog.row_history.row_key import RowKey
    from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
    from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess

Row = dict[str, Any]


def at_source(
    story: RowHistory, access: ConnectorAccess, table: TableId, key: RowKey, recorded_schema: TableSchema | None
) -> CurrentSourceRow:
    """Read the row at the source now, masked and with the columns that the connector captures.

    :param recorded_schema: the table as the connector's schema history has it
    :raises CdcError: the source cannot be queried
    """
    from airflow_provider_cdc.changelog.row_history.key_index import key_columns
    from airflow_provider_cdc.connector import parse_config
    from airflow_provider_cdc.core.config.capture_filters import Filters
    from airflow_provider_cdc.core.errors import QueryRejected
    from airflow_provider_cdc.core.spi.chunk_reader import KeyRange

    current = access.use_current_connection()
    properties = current.resolve_properties()
    config = parse_config(current.definition, properties)
    with current.open_source(properties) as source, source.open_chunk_reader(signals=None) as reader:
        source.adopt_columns([recorded_schema] if recorded_schema is not None else [])
        source_schema = reader.read_table_schema(table)
        if source_schema is None:
            return CurrentSourceRow(
                row=None, equal=story.row.state == "no row", position=str(source.current_position())
            )
        schema = Filters(config).select_columns(source_schema)
        values = key.to_key(key_columns(schema))
        if values is None:
            raise QueryRejected(
                f"The key of {table} at the source is now {', '.join(schema.key) or 'none'}, not {', '.join(key.values)}.",
                safe="Nothing was read.",
                remedy="omit the comparison with the source, or give the current key of the table",
            )
        key_range = KeyRange(
            source_schema, schema.key, keys=tuple(reader.to_source_keys(source_schema, schema.key, [values]))
        )
        blocks = reader.read(key_range, 2).rows
        row = _encoded(config, source, blocks, recorded_schema) if blocks else None
        position = str(source.current_position())
    return _compared(story, schema, row, position)


def _encoded(config: Any, source: Any, blocks: Sequence[Any], recorded_schema: TableSchema | None) -> Row | None:
    """Encode the row as an event has it."""
    from airflow_provider_cdc.changelog.row_history.json_values import to_json_values
    from airflow_provider_cdc.core.config.capture_filters import Filters
    from airflow_provider_cdc.core.writing.event_envelope import Envelope

    envelope = Envelope(config, Filters(config), source.connector, source.source_fields)
    rows = blocks[0] if source.STRUCTURED else source.conform_rows(blocks[0], recorded_schema)
    batches, _ = envelope.encode_read(rows, source.current_position(), 0, snapshot="false")
    return to_json_values(batches[0].events["after"])[0] if batches else None


def _compared(story: RowHistory, schema: TableSchema, row: Row | None, position: str) -> CurrentSourceRow:
    now = story.row
    if now.state == "unknown":
        return CurrentSourceRow(row=row, equal=None, position=position)
    if row is None or now.row is None:
        return CurrentSourceRow(row=row, equal=row is None and now.row is None, position=position)
    comparable = [name for name in schema.column_names if name in row and name not in now.unavailable]
    different = [name for name in comparable if name not in now.row or now.row[name] != row[name]]
    different += [name for name in now.row if name not in schema.column_names]
    return CurrentSourceRow(row=row, equal=not different, different=different, position=position)
