"""Table ids, columns and table schemas, without terms of any database.

A :class:`Column` has two faces. ``type`` is what the change log holds: an Arrow type, written as text so that schemas can
be stored as JSON and read without pyarrow. ``declared`` is what the database said, kept for schema change events (Debezium
MySQL connector, "Schema change topic": ``tableChanges``) and for rendering the documented semantic forms.

    >>> orders = TableId(namespace="inventory", name="orders")
    >>> str(orders)
    'inventory.orders'
    >>> Column(name="id", type="int64", nullable=False).type
    'int64'
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    import pyarrow as pa


class _FrozenModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TableId(_FrozenModel):
    """Identity of a table, as include lists and topics spell it.

    :param namespace: database (MySQL, MariaDB, MongoDB) or schema (Oracle, Db2)
    :param name: table or collection
    :param catalog: the level above the namespace where a source has one (Oracle's pluggable database); not part of the
        dotted name
    """

    namespace: str
    name: str
    catalog: str | None = None

    @property
    def database_name(self) -> str:
        """The database of a table as the documents mean it: the highest level there is."""
        return self.catalog or self.namespace

    @property
    def full_name(self) -> str:
        """The dotted name with the catalog in front, where there is one: ``ORCLPDB1.DEBEZIUM.CUSTOMERS``."""
        return f"{self.catalog}.{self}" if self.catalog else str(self)

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}"

    def __hash__(self) -> int:
        return hash((self.namespace, self.name))


class ColumnDeclaration(_FrozenModel):
    """Declaration of a column by the database's catalog or DDL; field names follow ``tableChanges[].columns[]``.

    ``default`` is the default's value as text, ``None`` when there is none or when it is NULL; ``default_is_expression``
    says that it is computed per row or statement (``CURRENT_TIMESTAMP``, ``uuid()``), so that its value is not known.
    ``comment`` is known with ``include.schema.comments`` only. ``number`` is the one that the database gave the column for good, if it does that: a
    column that is renamed keeps it, and one that is dropped and added again has another.
    """

    jdbc_type: int = 0
    type_name: str = ""
    type_expression: str = ""
    charset: str | None = None
    length: int | None = None
    scale: int | None = None
    auto_incremented: bool = False
    generated: bool = False
    default: str | None = None
    default_is_expression: bool = False
    values: tuple[str, ...] = ()
    comment: str | None = None
    number: int | None = None


class Column(_FrozenModel):
    """A captured column.

    :param type: Arrow type of its values in the change log (see :func:`arrow_type`); ``null`` for a column that is known
        and cannot be captured: the schema history has it, keys, row images and manifests do not
    :param semantic: Debezium's semantic schema name for the JSON form, ``None`` for plain literals
    :param parameters: parameters of the semantic type (``scale``, ``length``, ``allowed``)
    """

    name: str
    type: str
    nullable: bool = True
    semantic: str | None = None
    parameters: dict[str, str] = Field(default_factory=dict)
    declared: ColumnDeclaration = Field(default_factory=ColumnDeclaration)

    def __hash__(self) -> int:
        return hash((self.name, self.type))

    def with_comment(self, text: str | None) -> Column:
        """Return the column with another comment."""
        if text == self.declared.comment:
            return self
        return self.model_copy(update={"declared": self.declared.model_copy(update={"comment": text})})


class EventColumn(_FrozenModel):
    """A top-level column of a table's events, beside ``before`` and ``after``. It may be null.

    :param type: Arrow type of its values (see :func:`arrow_type`)
    :param described: its Connect schema, for the JSON form with schemas
    """

    name: str
    type: str
    described: dict[str, Any] = Field(default_factory=dict)


class DocumentSchema(_FrozenModel):
    """Content of the events of a table whose rows are documents, and how the JSON form shows them.

    See "Data change events" of the Debezium MongoDB connector. It is part of the schema, so that a reader of a batch knows it without the source.

    :param body: column with the text of a document: ``before`` and ``after`` are that text
    :param key_fields: key column → field of a record's key
    :param table_field: name of the table in the ``source`` block
    :param source_schema: name of the schema of the ``source`` block; ``None`` = the usual one
    :param columns: further columns of the events
    :param fields: the fields of a record's value, in this order
    :param preferred_form: the form of a document in tables that can have both: its text, or a *variant*, which has values with types. The change log
        has the text
    :param updates: kind of source whose events may have the changes of a document instead of the document: see
        :func:`~airflow_provider_cdc.core.spi.partial_update_applier.partial_updates`
    """

    body: str
    key_fields: dict[str, str] = Field(default_factory=dict)
    table_field: str = "table"
    source_schema: str | None = None
    columns: tuple[EventColumn, ...] = ()
    fields: tuple[str, ...] = ("before", "after", "source", "op", "ts_ms", "transaction")
    preferred_form: Literal["text", "variant"] = "text"
    updates: str | None = None


class TableSchema(_FrozenModel):
    """A table's columns and key, in force from some log position on.

    :param version: grows by one with each schema change of the table; 1 is the first known schema
    :param key: names of the key columns, in key order; empty for a table without a key
    :param documents: the rows are documents; ``None`` for a table like any other
    :param provisional: neither a snapshot at its position nor statements in the log prove it: it is from a catalog that may be ahead of the
        log. A source whose log does not describe rows completely must not decode them with it
    :param object_number: the one that the database gave the table for good, if it does that and its log names tables by it: a table that is renamed
        keeps it, and one that is dropped and created again has another
    :param converted: column → Arrow type that a user's converter gives it in events; the type of the column is the one that it has in the source's rows
    """

    id: TableId
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    charset: str | None = None
    comment: str | None = None
    version: int = 1
    documents: DocumentSchema | None = None
    provisional: bool = False
    object_number: int | None = None
    converted: dict[str, str] = Field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.id, self.version, self.columns))

    def get_column(self, name: str) -> Column:
        """Return the column called ``name``; ``KeyError`` when there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"{self.id} has no column {name!r}; its columns are {', '.join(c.name for c in self.columns)}")

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)

    @property
    def variant_column(self) -> str:
        """The column whose texts are to be variants (:attr:`DocumentSchema.preferred_form`); empty if there is none."""
        return self.documents.body if self.documents is not None and self.documents.preferred_form == "variant" else ""

    def same_structure(self, other: TableSchema) -> bool:
        """Check whether rows have the same columns: comments, versions, conversions, and whether it is provisional, may differ."""
        return self._without_comments().same_description(other._without_comments())

    def same_description(self, other: TableSchema) -> bool:
        """Check whether at most the version differs, whether it is provisional, and which columns are converted."""
        beside = {"version": other.version, "provisional": other.provisional, "converted": other.converted}
        return self.model_copy(update=beside) == other

    def _without_comments(self) -> TableSchema:
        if self.comment is None and all(c.declared.comment is None for c in self.columns):
            return self
        return self.model_copy(update={"comment": None, "columns": tuple(c.with_comment(None) for c in self.columns)})


class TableChange(_FrozenModel):
    """Part of a schema change that concerns one table: the whole schema after it, not a difference.

    :param type: ``CREATE``, ``ALTER`` or ``DROP``
    :param previous_id: the old id of a renamed table
    :param table: schema after the change; ``None`` after a drop
    :param renamed: new column name → old column name
    :param added: new column → value that existing rows have in it, as text that a cast to the column's type understands;
        ``None`` is NULL
    :param dropped: columns of the schema before that no column continues, or is called as; sources name those that are made again, :class:`SchemaHistory` fills in the others
    :param exact: ``False`` if existing rows may have values that neither the log nor this change shows
    """

    type: Literal["CREATE", "ALTER", "DROP"]
    id: TableId
    previous_id: TableId | None = None
    table: TableSchema | None = None
    renamed: dict[str, str] = Field(default_factory=dict)
    added: dict[str, str | None] = Field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    exact: bool = True


_DECIMAL = re.compile(r"decimal128\((\d+), (-?\d+)\)")
_TIMESTAMP = re.compile(r"timestamp\[(s|ms|us|ns)(?:, tz=(.+))?\]")
_LIST = re.compile(r"list<item: (.+)>")
_STRUCT = re.compile(r"struct<(.+)>")


@lru_cache(maxsize=1024)
def arrow_type(text: str) -> pa.DataType:
    """Return the Arrow type that ``Column.type`` names.

    Understands what sources declare: the fixed-width numbers, ``bool``, ``string``, ``binary``, ``date32[day]``,
    ``timestamp[us]``, ``timestamp[ns, tz=UTC]``, ``decimal128(12, 2)``, ``list<item: float>``, structs such as that of geometries, and
    ``null`` for what cannot be captured.
    Raises ``ValueError`` for anything else.

        >>> arrow_type("decimal128(12, 2)")
        Decimal128Type(decimal128(12, 2))
    """
    import pyarrow as pa

    simple = {
        NOT_CAPTURED: pa.null(),
        "bool": pa.bool_(),
        "int8": pa.int8(),
        "int16": pa.int16(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date32[day]": pa.date32(),
    }
    if text in simple:
        return simple[text]
    if m := _DECIMAL.fullmatch(text):
        return pa.decimal128(int(m[1]), int(m[2]))
    if m := _TIMESTAMP.fullmatch(text):
        return pa.timestamp(m[1], tz=m[2])
    if m := _LIST.fullmatch(text):
        return pa.list_(arrow_type(m[1]))
    if m := _STRUCT.fullmatch(text):
        return pa.struct([(name, arrow_type(type_)) for name, _, type_ in (f.partition(": ") for f in _fields(m[1]))])
    raise ValueError(f"unknown change log type {text!r}")


def _fields(text: str) -> list[str]:
    """Return the fields of a struct, which may hold structs themselves.

    >>> _fields("a: string, b: struct<c: int32, d: decimal128(3, 1)>")
    ['a: string', 'b: struct<c: int32, d: decimal128(3, 1)>']
    """
    fields, depth, begin = [], 0, 0
    for at, sign in enumerate(text):
        depth += (sign in "<([") - (sign in ">)]")
        if sign == "," and not depth:
            fields.append(text[begin:at].strip())
            begin = at + 1
    return [*fields, text[begin:].strip()]


GEOMETRY = "struct<wkb: binary, srid: int32>"
"""``Column.type`` of spatial columns."""
NOT_CAPTURED = "null"
"""``Column.type`` of columns that cannot be captured."""
HEADER = "__header."
"""Beginning of the names of columns that are no columns of the table, but headers of its records."""


def row_struct(schema: TableSchema, *, only: tuple[str, ...] | None = None) -> pa.StructType:
    """Return the Arrow struct of a row (``before``, ``after``) or, with ``only``, of a key."""
    import pyarrow as pa

    columns = schema.columns if only is None else [schema.get_column(n) for n in only]
    return pa.struct([pa.field(c.name, arrow_type(c.type)) for c in columns])


def as_document(value: BaseModel) -> dict[str, Any]:
    """JSON form of a schema object without its defaults, short enough to be stored by the thousand."""
    return value.model_dump(mode="json", exclude_defaults=True)
