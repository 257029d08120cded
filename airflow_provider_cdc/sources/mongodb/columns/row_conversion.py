"""Rows of documents become rows of columns where they are written: there it is known which columns the table has.

Readers of documents (several readers of a snapshot, chunks, the stream) give rows with the bytes of documents. They need not know what the others have found.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.core.errors import ConfigError, UnreadableValue
from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema, row_struct
from airflow_provider_cdc.sources.mongodb.collection_tables import collection_schema
from airflow_provider_cdc.sources.mongodb.columns.column_fields import (
    FIRST,
    NUMBERS,
    CollectionFields,
    empty_schema,
    in_columns,
)
from airflow_provider_cdc.sources.mongodb.columns.shredding import shred_documents
from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.document_format_config import (
    DeclaredColumns,
    parse_columns_property,
    parse_declared_columns,
)
from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonValues
from airflow_provider_cdc.sources.mongodb.documents.document_errors import DamagedDocument, DocumentError
from airflow_provider_cdc.sources.mongodb.documents.extended_json import format_values
from airflow_provider_cdc.sources.mongodb.documents.utf8_repair import with_replaced_texts
from airflow_provider_cdc.sources.mongodb.kernels import bson_lengths

log = logging.getLogger(__name__)

Mask = npt.NDArray[np.bool_]
Validator = Callable[[TableId], Mapping[str, Any] | None]


@lru_cache(maxsize=4096)
def build_bytes_schema(table: TableId) -> TableSchema:
    """Build the schema of rows whose documents are still bytes."""
    return TableSchema(
        id=table, key=("_id",), columns=(Column(name="_id", type="string", nullable=False), Column(name="document", type="binary"))
    )  # fmt: skip


class ColumnTables:
    """The tables of one connector whose documents are in columns.

    :param validator: gives the JSON Schema of a collection's validator; ``None``: it has none
    """

    def __init__(self, config: MongoDbConfig, validator: Validator) -> None:
        self._config, self._validator = config, validator
        self._declared: dict[TableId, DeclaredColumns] = {}
        self._elsewhere: dict[TableId, TableSchema] = {}
        self._fields: dict[TableId, tuple[tuple[Column, ...] | None, CollectionFields]] = {}

    def adopt_columns(self, tables: Iterable[TableSchema]) -> None:
        """Begin tables with the columns that they have elsewhere."""
        self._elsewhere |= {table.id: table.model_copy(update={"version": 1}) for table in tables if in_columns(table)}

    def resolve_schema(self, table: TableId, recorded: TableSchema | None = None) -> TableSchema:
        """Build a collection's table: the columns that it has, and those that are declared.

        Of a table in another form, it has none of the columns.
        """
        base = recorded if recorded is not None and in_columns(recorded) else self._first(table)
        return _with_columns(base, self._build_fields(table, base.columns))

    def convert_rows(self, rows: RowBlock, recorded: TableSchema | None) -> RowBlock:
        """Rows with the columns of their table; fields that it has no column for get one.

        :param recorded: the table as it is; one with documents as texts keeps that form
        :raises ConfigError: the table has columns, and the rows have texts
        :raises UnreadableValue: a document is damaged
        """
        table = rows.table.id
        if rows.table != build_bytes_schema(table):  # an equal one may have been made before
            if recorded is not None and in_columns(recorded):
                if rows.table.documents is None:
                    return _only_keys(rows, recorded)
                raise ConfigError(
                    f"The table of {table} has its documents as columns, but they are now captured as text, "
                    "because document.columns.list no longer names the collection.",
                    safe="No part of these documents was written.",
                    remedy="name the collection in document.columns.list again, or take a blocking snapshot of it, "
                    "which converts the table to the new form",
                )
            return rows
        if recorded is not None and not in_columns(recorded):
            return _as_texts(rows)
        try:
            return self._in_columns(rows, recorded or self._first(table))
        except DocumentError as e:
            error = UnreadableValue(
                f"A document of {table} cannot be read: {e}",
                safe="Everything before the document is captured.",
                remedy="fix the document, or exclude the collection with collection.exclude.list",
            )
            error.table = str(table)
            raise error from e

    def _in_columns(self, rows: RowBlock, schema: TableSchema) -> RowBlock:
        try:
            return self._apart(rows, schema)
        except DamagedDocument as e:
            if not e.not_utf8:
                raise
        self._fields.pop(rows.table.id, None)
        log.warning(
            "Documents of %s contain texts that are not valid UTF-8: invalid bytes become U+FFFD.", rows.table.id
        )
        before, after = (_with_replaced_texts(image) for image in (rows.before, rows.after))
        return self._apart(replace(rows, before=before, after=after), schema)

    def _apart(self, rows: RowBlock, base: TableSchema) -> RowBlock:
        fields = self._of(rows.table.id, base)
        before, after = (_parts(image, fields) for image in (rows.before, rows.after))
        schema = _with_columns(base, fields)
        self._fields[schema.id] = (schema.columns, fields)
        n = len(schema.columns)
        return replace(
            rows, table=schema, before=_image(rows.before, before, schema), after=_image(rows.after, after, schema), beside={},
            unavailable_before=_spread(rows.unavailable_before, n), unavailable_after=_spread(rows.unavailable_after, n),
        )  # fmt: skip

    def _first(self, table: TableId) -> TableSchema:
        return self._elsewhere.get(table) or empty_schema(table)

    def _of(self, table: TableId, schema: TableSchema) -> CollectionFields:
        cached = self._fields.get(table)
        if cached is not None and cached[0] is schema.columns:
            return cached[1]
        return self._build_fields(table, schema.columns)

    def _build_fields(self, table: TableId, columns: tuple[Column, ...]) -> CollectionFields:
        config = self._config
        fields = CollectionFields(columns[len(FIRST) :], config.document_columns_depth, config.document_columns_max)
        declared = self._find_declared_columns(table)
        fields.declare_columns((path, NUMBERS[word]) for path, word in declared.columns)
        if declared.closed:
            fields.freeze_columns()
        return fields

    def _find_declared_columns(self, table: TableId) -> DeclaredColumns:
        if table not in self._declared:
            config, declared = self._config, DeclaredColumns()
            if (text := config.document_columns_schema.get(str(table))) is not None:
                depth = config.document_columns_depth
                listed = parse_columns_property(str(table), text, depth)
                declared = listed if listed is not None else parse_declared_columns(self._validator(table) or {}, depth)
            self._declared[table] = declared
        return self._declared[table]


def _with_columns(schema: TableSchema, fields: CollectionFields) -> TableSchema:
    if len(fields.columns) + len(FIRST) == len(schema.columns):
        return schema
    return schema.model_copy(update={"columns": (*FIRST, *fields.columns)})


def _parts(image: pa.StructArray | None, fields: CollectionFields) -> list[pa.Array] | None:
    """Return the columns of an image, without the key; those that come up later are not there yet."""
    if image is None:
        return None
    columns = shred_documents(documents_of(image.field(1)), fields)
    return [columns.rest, *columns.columns]


def _image(image: pa.StructArray | None, parts: list[pa.Array] | None, schema: TableSchema) -> pa.StructArray | None:
    if image is None or parts is None:
        return None
    type_ = row_struct(schema)
    columns = [image.field(0), *parts]
    columns += [pa.nulls(len(image), type_.field(i).type) for i in range(len(columns), type_.num_fields)]
    return pa.StructArray.from_arrays(columns, fields=list(type_), mask=image.is_null() if image.null_count else None)


def _with_replaced_texts(image: pa.StructArray | None) -> pa.StructArray | None:
    if image is None:
        return None
    body = with_replaced_texts(documents_of(image.field(1))).to_binary().cast(pa.binary())
    mask = image.is_null() if image.null_count else None
    return pa.StructArray.from_arrays([image.field(0), body], ["_id", "document"], mask=mask)


def documents_of(column: pa.Array) -> BsonValues:
    """Documents whose bytes a column has; of nulls none."""
    column = column.cast(pa.large_binary())
    offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
    data = column.buffers()[2]
    buf = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    kinds = np.where(np.asarray(column.is_valid()), bson_lengths.DOCUMENT, bson_lengths.ABSENT).astype(np.uint8)
    return BsonValues(buf, kinds, offsets[:-1], offsets[1:])


def _as_texts(rows: RowBlock) -> RowBlock:
    def texts_of(image: pa.StructArray | None) -> pa.StructArray | None:
        if image is None:
            return None
        body = format_values(documents_of(image.field(1)), replace_not_utf8=True).cast(pa.string())
        mask = image.is_null() if image.null_count else None
        return pa.StructArray.from_arrays([image.field(0), body], ["_id", "document"], mask=mask)

    return replace(
        rows, table=collection_schema(rows.table.id), before=texts_of(rows.before), after=texts_of(rows.after)
    )


def _only_keys(rows: RowBlock, table: TableSchema) -> RowBlock:
    """Rows of which only the key is said, or that have the table's own columns, in the columns of the table."""
    names, type_ = list(rows.table.column_names), row_struct(table)

    def image_of(image: pa.StructArray | None) -> pa.StructArray | None:
        if image is None:
            return None
        columns = [image.field(names.index(f.name)) if f.name in names else pa.nulls(len(rows), f.type) for f in type_]
        return pa.StructArray.from_arrays(
            columns, fields=list(type_), mask=image.is_null() if image.null_count else None
        )

    def mask_of(mask: Mask | None) -> Mask | None:
        if mask is None:
            return None
        return np.array([mask[names.index(f.name)] if f.name in names else mask.any(axis=0) for f in type_])

    return replace(
        rows, table=table, before=image_of(rows.before), after=image_of(rows.after),
        unavailable_before=mask_of(rows.unavailable_before), unavailable_after=mask_of(rows.unavailable_after),
    )  # fmt: skip


def _spread(mask: Mask | None, columns: int) -> Mask | None:
    """Spread a mask of the document over its columns: where the document is missing, each of its columns is."""
    if mask is None:
        return None
    return np.array([mask[0], *[mask[1]] * (columns - 1)])
