"""The properties of sources that have tables with columns, structures that change, and statements.

This module is imported at DAG parse: it must stay light.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar

from pydantic import Field

from airflow_provider_cdc.core.config.base_configuration import COLUMN_TEXTS, PropertyEffect
from airflow_provider_cdc.core.config.connector_config import ColumnSelection, ConnectorConfig
from airflow_provider_cdc.core.config.property_enums import (
    BinaryHandling,
    DecimalHandling,
    Patterns,
    RewriteMode,
    SnapshotQueryMode,
    TimePrecision,
)
from airflow_provider_cdc.core.errors import ConfigError

_COLUMN = re.compile(r"[^\W\d][\w$#]*")
_TABLE = re.compile(r"[\w$#]+(\.[\w$#]+)*")


class TableConfig(ConnectorConfig):
    """The additional properties of sources that have tables.

    Defaults are the documented ones unless the description says otherwise.
    """

    table_include_list: Patterns = Field(
        (), alias="table.include.list", description="Tables to capture, as database.table; all others are left out."
    )
    table_exclude_list: Patterns = Field(
        (), alias="table.exclude.list", description="Tables to leave out; all others are captured."
    )
    column_include_list: Patterns = Field(
        (),
        alias="column.include.list",
        description="Columns to capture, as database.table.column. Key columns should be among them.",
    )
    column_exclude_list: Patterns = Field((), alias="column.exclude.list", description="Columns to leave out.")
    column_texts: dict[str, Patterns] = Field(
        {},
        alias="column.mask.with.<length>.chars, column.truncate.to.<length>.chars",
        description="Texts of these columns, named as database.table.column, become that many asterisks, or lose what is beyond "
        "the length. Columns of a key cannot be among them.",
    )
    column_propagate_source_type: Patterns = Field(
        (),
        alias="column.propagate.source.type",
        description="In the Debezium JSON form, schemas of these columns name their type in the database, its length and scale.",
    )
    datatype_propagate_source_type: Patterns = Field(
        (), alias="datatype.propagate.source.type", description="The same by the type, as database.table.TYPE."
    )
    message_key_columns: str = Field(
        "",
        alias="message.key.columns",
        description="Keys of one's own: database.table:column,column; several separated by semicolons.",
    )
    decimal_handling_mode: DecimalHandling = Field(
        DecimalHandling.PRECISE,
        alias="decimal.handling.mode",
        description="DECIMAL as exact decimals, as doubles, or as texts.",
    )
    binary_handling_mode: BinaryHandling = Field(
        BinaryHandling.BYTES,
        alias="binary.handling.mode",
        description="Bytes as they are, or as texts in base64 or hexadecimal.",
    )
    time_precision_mode: TimePrecision = Field(
        TimePrecision.ADAPTIVE_TIME_MICROSECONDS,
        alias="time.precision.mode",
        description="Names and units of dates and times in the Debezium JSON form.",
    )
    skip_messages_without_change: bool = Field(
        False,
        alias="skip.messages.without.change",
        description="Leave out updates that change no captured column.",
    )
    include_schema_changes: bool = Field(
        True,
        alias="include.schema.changes",
        description="In the Debezium JSON form, schema changes are records of the topic that is named like the prefix.",
    )
    snapshot_query_mode: SnapshotQueryMode = Field(
        SnapshotQueryMode.SELECT_ALL,
        alias="snapshot.query.mode",
        description="What a snapshot reads of a table: all rows, or what a query of one's own gives.",
    )
    snapshot_query_mode_custom_name: str | None = Field(
        None,
        alias="snapshot.query.mode.custom.name",
        description="With snapshot.query.mode=custom: name of an entry point, which gives the SELECT for each table, instead of all others.",
    )
    snapshot_locking_mode_custom_name: str | None = Field(
        None,
        alias="snapshot.locking.mode.custom.name",
        description="With snapshot.locking.mode=custom: name of an entry point, which gives the statement that locks a table.",
    )
    schema_change_rewrite_mode: RewriteMode = Field(
        RewriteMode.SNAPSHOT,
        alias="schema.change.rewrite.mode",
        description="Ours. A DDL statement may change existing rows without a row event (a lossy type change, a new "
        "column with a computed default). 'snapshot' reads that table again, 'fail' stops, 'ignore' goes on.",
    )
    heartbeat_action_query: str | None = Field(
        None,
        alias="heartbeat.action.query",
        description="Statement that is run on the source with each heartbeat, so that the log of a quiet database moves on.",
    )

    NOT_SUPPORTED: ClassVar[Mapping[str, str]] = {
        "column.mask.hash.*": "the name of the property has the salt, which would be in state, logs and manifests; hide the column with "
        "column.mask.with.<length>.chars or leave it out with column.exclude.list",
        "column.mask.*": "only column.mask.with.<length>.chars",
        "column.truncate.to.*": "only column.truncate.to.<length>.chars",
    }
    LISTS: ClassVar[Mapping[str, PropertyEffect]] = {
        "table.include.list": PropertyEffect.TABLES,
        "table.exclude.list": PropertyEffect.TABLES,
        "column.include.list": PropertyEffect.COLUMNS,
        "column.exclude.list": PropertyEffect.COLUMNS,
        COLUMN_TEXTS: PropertyEffect.COLUMNS,
        "decimal.handling.mode": PropertyEffect.FORM,
        "binary.handling.mode": PropertyEffect.FORM,
        "time.precision.mode": PropertyEffect.FORM,
    }

    @classmethod
    def changed_since(cls, table: str, column: str, moment: datetime, *, given: str | None, blocking: bool) -> str:
        if not _COLUMN.fullmatch(column):
            raise _wrong(f"{column!r} cannot be a column's name here.", "write the condition as a filter instead")
        since = f"{column} >= TIMESTAMP '{moment:%Y-%m-%d %H:%M:%S}'"
        if not blocking:
            return since if given is None else f"({given}) AND {since}"
        if given is not None:
            raise _wrong(
                f"{table} has a filter, which is the whole SELECT in a blocking snapshot, and nothing can be added to it.",
                "write the condition into the SELECT, and leave changed since empty",
            )
        if not _TABLE.fullmatch(table):
            raise _wrong(f"{table} cannot be written into a SELECT as it is.", "give its SELECT as a filter")
        return f"SELECT * FROM {table} WHERE {since}"

    @classmethod
    def list_shared_properties(cls) -> set[str]:
        return {str(f.alias) for f in TableConfig.model_fields.values()}

    @classmethod
    def exclusive_pairs(cls) -> list[tuple[str, str]]:
        own = [("table_include_list", "table_exclude_list"), ("column_include_list", "column_exclude_list")]
        return super().exclusive_pairs() + own

    def table_lists(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self.table_include_list, self.table_exclude_list

    def column_rules(self) -> ColumnSelection:
        return ColumnSelection(
            self.column_include_list,
            self.column_exclude_list,
            self.message_key_columns,
            self.column_texts,
            self.column_propagate_source_type,
            self.datatype_propagate_source_type,
        )

    def skips_unchanged(self) -> bool:
        return self.skip_messages_without_change

    def shows_schema_changes(self) -> bool:
        return self.include_schema_changes

    def rewrite_mode(self) -> RewriteMode:
        return self.schema_change_rewrite_mode

    def heartbeat_statement(self) -> str | None:
        return self.heartbeat_action_query


def _wrong(what: str, remedy: str) -> ConfigError:
    return ConfigError(what, safe="Nothing was sent.", remedy=remedy)
