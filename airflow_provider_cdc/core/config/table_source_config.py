"""The properties of sources that have tables with columns, structures that change, and statements.

This module is imported at DAG parse: it must stay light.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from airflow_provider_cdc.core.config.base_configuration import COLUMN_HASHES, COLUMN_TEXTS, PropertyEffect
from airflow_provider_cdc.core.config.column_masking import SALT_OF_CONNECTION, check_hash_property
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
        (),
        alias="table.include.list",
        description="Tables to capture, as database.table. All other tables are left out.",
    )
    table_exclude_list: Patterns = Field(
        (), alias="table.exclude.list", description="Tables to leave out. All other tables are captured."
    )
    column_include_list: Patterns = Field(
        (),
        alias="column.include.list",
        description="Columns to capture, as database.table.column. Include the key columns.",
    )
    column_exclude_list: Patterns = Field((), alias="column.exclude.list", description="Columns to leave out.")
    column_texts: dict[str, Patterns] = Field(
        {},
        alias="column.mask.with.<length>.chars, column.truncate.to.<length>.chars",
        description="Columns, as database.table.column, with text to replace by <length> asterisks, or to truncate to <length> "
        "characters. Key columns are not allowed.",
    )
    column_hashes: dict[str, Patterns] = Field(
        {},
        alias="column.mask.hash.v2.<hashAlgorithm>.with.salt.<salt>, column.mask.hash.<hashAlgorithm>.with.salt.<salt>",
        description="Columns, as database.table.column, with text to replace by a pseudonym: the hash of salt and text, shortened to the length of the "
        "column. Equal texts have equal pseudonyms. The salt ${connection} is the column.mask.salt of the Airflow connection. Key columns are not allowed.",
    )
    column_mask_salt: SecretStr | None = Field(
        None,
        alias="column.mask.salt",
        description="Not in Debezium. Salt of the pseudonyms whose property has the salt ${connection}; comes from the Airflow connection.",
    )
    column_propagate_source_type: Patterns = Field(
        (),
        alias="column.propagate.source.type",
        description="In the Debezium JSON form, columns with a schema that includes the database type, its length and scale.",
    )
    datatype_propagate_source_type: Patterns = Field(
        (),
        alias="datatype.propagate.source.type",
        description="The same as column.propagate.source.type, by the type of the column, as database.table.TYPE.",
    )
    message_key_columns: str = Field(
        "",
        alias="message.key.columns",
        description="Custom key columns of tables, as database.table:column,column. Separate several tables by semicolons.",
    )
    decimal_handling_mode: DecimalHandling = Field(
        DecimalHandling.PRECISE,
        alias="decimal.handling.mode",
        description="Whether DECIMAL values are exact decimals, doubles or strings.",
    )
    binary_handling_mode: BinaryHandling = Field(
        BinaryHandling.BYTES,
        alias="binary.handling.mode",
        description="Whether binary values are bytes, or strings in base64 or hexadecimal.",
    )
    time_precision_mode: TimePrecision = Field(
        TimePrecision.ADAPTIVE_TIME_MICROSECONDS,
        alias="time.precision.mode",
        description="Names and units of dates and times in the Debezium JSON form.",
    )
    skip_messages_without_change: bool = Field(
        False,
        alias="skip.messages.without.change",
        description="Whether to leave out updates that change no captured column.",
    )
    include_schema_changes: bool = Field(
        True,
        alias="include.schema.changes",
        description="In the Debezium JSON form, write schema changes as records of the topic that has the topic prefix as its name.",
    )
    snapshot_query_mode: SnapshotQueryMode = Field(
        SnapshotQueryMode.SELECT_ALL,
        alias="snapshot.query.mode",
        description="Rows of a table that a snapshot reads: all rows, or the result of a custom query.",
    )
    snapshot_query_mode_custom_name: str | None = Field(
        None,
        alias="snapshot.query.mode.custom.name",
        description="With snapshot.query.mode=custom: name of the entry point that returns the SELECT statement of each table, in place of every other one.",
    )
    snapshot_locking_mode_custom_name: str | None = Field(
        None,
        alias="snapshot.locking.mode.custom.name",
        description="With snapshot.locking.mode=custom: name of the entry point that returns the statement that locks a table.",
    )
    schema_change_rewrite_mode: RewriteMode = Field(
        RewriteMode.SNAPSHOT,
        alias="schema.change.rewrite.mode",
        description="Not in Debezium. Action when a DDL statement may have changed existing rows without row events (a lossy type change, a new "
        "column with a computed default): 'snapshot' snapshots the table again, 'fail' stops, 'ignore' continues.",
    )
    heartbeat_action_query: str | None = Field(
        None,
        alias="heartbeat.action.query",
        description="Statement to run on the source with each heartbeat, so that the log of a quiet database advances.",
    )

    CONNECTION_ONLY: ClassVar[tuple[str, ...]] = ("column.mask.salt",)
    NOT_SUPPORTED: ClassVar[Mapping[str, str]] = {
        "column.mask.hash.*": "use column.mask.hash.v2.<hashAlgorithm>.with.salt.<salt>",
        "column.mask.*": "use column.mask.with.<length>.chars or column.mask.hash.v2.<hashAlgorithm>.with.salt.<salt>",
        "column.truncate.to.*": "use column.truncate.to.<length>.chars",
    }
    LISTS: ClassVar[Mapping[str, PropertyEffect]] = {
        "table.include.list": PropertyEffect.TABLES,
        "table.exclude.list": PropertyEffect.TABLES,
        "column.include.list": PropertyEffect.COLUMNS,
        "column.exclude.list": PropertyEffect.COLUMNS,
        COLUMN_TEXTS: PropertyEffect.COLUMNS,
        COLUMN_HASHES: PropertyEffect.COLUMNS,
        "decimal.handling.mode": PropertyEffect.FORM,
        "binary.handling.mode": PropertyEffect.FORM,
        "time.precision.mode": PropertyEffect.FORM,
    }

    @field_validator("column_hashes")
    @classmethod
    def _known_algorithms(cls, hashes: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for name in hashes:
            check_hash_property(name)
        return hashes

    @model_validator(mode="after")
    def _has_the_salt(self) -> Self:
        if self.column_mask_salt is None:
            for name in self.column_hashes:
                if name.endswith(f".with.salt.{SALT_OF_CONNECTION}"):
                    raise ValueError(
                        f'{name}: the connection has no salt; set {{"column.mask.salt": "…"}} in the extra of the Airflow connection'
                    )
        return self

    @classmethod
    def changed_since(cls, table: str, column: str, moment: datetime, *, given: str | None, blocking: bool) -> str:
        if not _COLUMN.fullmatch(column):
            raise _wrong(f"{column!r} is not a column name that 'changed since' supports.", "use a filter instead")
        since = f"{column} >= TIMESTAMP '{moment:%Y-%m-%d %H:%M:%S}'"
        if not blocking:
            return since if given is None else f"({given}) AND {since}"
        if given is not None:
            raise _wrong(
                f"{table} has a filter. In a blocking snapshot, the filter is the whole SELECT statement and cannot be extended.",
                "add the condition to the SELECT statement, and leave 'changed since' empty",
            )
        if not _TABLE.fullmatch(table):
            raise _wrong(
                f"The name {table} needs quotes in a SELECT statement.", "use its whole SELECT statement as the filter"
            )
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
            self.hidden_columns(),
            self.column_propagate_source_type,
            self.datatype_propagate_source_type,
            self.column_mask_salt.get_secret_value() if self.column_mask_salt is not None else None,
        )

    def hidden_columns(self) -> dict[str, tuple[str, ...]]:
        """Return the properties that hide, cut or replace texts, with the patterns of their columns."""
        return {**self.column_texts, **self.column_hashes}

    def skips_unchanged(self) -> bool:
        return self.skip_messages_without_change

    def shows_schema_changes(self) -> bool:
        return self.include_schema_changes

    def rewrite_mode(self) -> RewriteMode:
        return self.schema_change_rewrite_mode

    def heartbeat_statement(self) -> str | None:
        return self.heartbeat_action_query


def _wrong(problem: str, remedy: str) -> ConfigError:
    return ConfigError(problem, safe="Nothing was sent.", remedy=remedy)
