"""Assignment of the fields of documents to columns, and the schema that this makes.

A column is a field with one form of values. The first form that a field has gives the column the field's name; a further form has a separate column,
``price__string`` beside ``price``. So a schema only ever gets more columns: no value that is in a table has to change its type. Each column's declaration says
its form (``type_name``) and the path of its field (``type_expression``), which is all that is needed when the next documents come.
"""

from __future__ import annotations

import itertools
import json
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from airflow_provider_cdc.core.model.table_schema import Column, ColumnDeclaration, TableId, TableSchema
from airflow_provider_cdc.sources.mongodb.kernels import document_columns as k

KEY: Final = "_id"
REST: Final = "_rest"
"""The column of all fields that have no separate column: extended JSON, null where no field is left."""
_JSON: Final = "io.debezium.data.Json"
_TAKEN: Final = frozenset(
    {
        "_row_id_", "_file_name_", "_source_row_present_", "_target_row_present_", "_row_dropped_", "__delta_internal_is_row_deleted",
        "__delta_internal_row_index", "_metadata", "filepath", "rowindexcol", "deletionvectorid", "_file", "_pos", "_deleted", "_spec_id", "_partition",
        "_row_id", "_last_updated_sequence_number", "_change_type", "_commit_version", "_commit_timestamp",
        "xmin", "xmax", "cmin", "cmax", "ctid", "tableoid",  # PostgreSQL
        "db_row_id", "db_trx_id", "db_roll_ptr",  # MySQL, MariaDB
        "rowid",  # Oracle
    }
)  # fmt: skip
"""Names that formats of tables, and databases, have for columns of their own: they take no other column of such a name, in quotes neither."""
_LAST_PLAIN: Final = "\uffff"
"""MySQL and Db2 take no character beyond it in a name."""
_LONGEST: Final = 60
"""Bytes that a name may have: PostgreSQL takes 63."""
_FIELDS_FOR_EACH_COLUMN: Final = 8
"""Documents whose fields are columns have none themselves; how many fields there may be, columns or not."""

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ColumnForm:
    """A form that values have in a column.

    :param word: its name, also in names of columns
    :param type: Arrow type
    """

    word: str
    type: str
    semantic: str | None = None


FORMS: Final = {
    k.LONG: ColumnForm("long", "int64"),
    k.DOUBLE: ColumnForm("double", "double"),
    k.STRING: ColumnForm("string", "string"),
    k.BOOL: ColumnForm("bool", "bool"),
    k.DATE: ColumnForm("date", "timestamp[us, tz=UTC]", "io.debezium.time.ZonedTimestamp"),
    k.OBJECT_ID: ColumnForm("objectid", "string"),
    k.BINARY: ColumnForm("bindata", "binary"),
    k.UUID: ColumnForm("uuid", "string", "io.debezium.data.Uuid"),
    k.DECIMAL: ColumnForm("decimal", "string"),
    k.JSON: ColumnForm("json", "string", _JSON),
}
NUMBERS: Final = {form.word: number for number, form in FORMS.items()}
FIRST: Final = (Column(name=KEY, type="string", nullable=False), Column(name=REST, type="string", semantic=_JSON))


def in_columns(schema: TableSchema | None) -> bool:
    """Check whether the documents of a table are in columns."""
    return schema is not None and schema.columns[: len(FIRST)] == FIRST


def empty_schema(table: TableId) -> TableSchema:
    """Build a table none of whose fields is known."""
    return TableSchema(id=table, key=(KEY,), columns=FIRST)


def path_of(column: Column) -> Path:
    """Return the field that a column is of."""
    return tuple(json.loads(column.declared.type_expression))


class CollectionFields:
    """The fields of one collection, as arrays that kernels read.

    :param columns: those that its table has, of fields alone
    :param depth: how many levels of documents are taken apart; 1: top-level fields are columns
    :param most: how many columns there may be
    """

    def __init__(self, columns: Sequence[Column], depth: int, most: int) -> None:
        self.depth, self._most = depth, most
        self.columns: list[Column] = []
        self.forms: list[int] = []
        self._names = {KEY, REST, *_TAKEN}
        self._at: dict[tuple[int, str], int] = {}
        self._parents: list[int] = []
        self._texts: list[bytes] = []
        self._opens: list[bool] = []
        self._levels: list[int] = []
        self._of: list[list[int]] = []
        key = self._field(-1, KEY)
        self._of[key], self._opens[key] = [k.NOWHERE] * k.FORMS, False
        for column in columns:
            self._put(self._entered(path_of(column)), column)
        self._arrays()

    @property
    def has_room(self) -> bool:
        """Check whether there may be more columns."""
        return len(self.columns) < self._most and len(self._parents) < _FIELDS_FOR_EACH_COLUMN * (self._most + 1)

    def freeze_columns(self) -> None:
        """No other field gets a column, nor a field another form: all others are in the rest."""
        self._most = 0

    def declare_columns(self, columns: Iterable[tuple[Path, int]]) -> None:
        """Have columns for fields and forms of their values, as long as there is room."""
        for path, number in columns:
            field = self._entered(path)
            if self.has_room and self._of[field][number] == k.REST:
                self._put(field, self._column(path, number))
        self._arrays()

    def learn_field(self, field: int, within: int, name: str, number: int) -> None:
        """Add a field that documents have, or a form of its values that is not known.

        :param field: -1: not known
        :param within: the field that it is within, or -1
        :param number: the form, or :data:`~..kernels.document_columns.WITHIN`
        """
        field = field if field >= 0 else self._field(within, name)
        if number != k.WITHIN:
            self._put(field, self._column(self._path(field), number))
        self._arrays()

    # -- fields -------------------------------------------------------------------------------------------------------

    def _entered(self, path: Path) -> int:
        """Return the field of a path, from now on known."""
        field = -1
        for name in path:
            child = self._at.get((field, name))
            field = self._field(field, name) if child is None else child
        return field

    def _field(self, within: int, name: str) -> int:
        number, level = len(self._parents), 1 if within < 0 else self._levels[within] + 1
        self._at[within, name] = number
        self._parents.append(within)
        self._texts.append(name.encode() + b"\0")
        self._levels.append(level)
        self._opens.append(level < self.depth)
        self._of.append([k.REST] * k.FORMS)
        return number

    def _path(self, field: int) -> Path:
        path: list[str] = []
        while field >= 0:
            path.insert(0, self._texts[field][:-1].decode())
            field = self._parents[field]
        return tuple(path)

    # -- columns ------------------------------------------------------------------------------------------------------

    def _put(self, field: int, column: Column) -> None:
        self._of[field][NUMBERS[column.declared.type_name]] = len(self.columns)
        self.columns.append(column)
        self.forms.append(NUMBERS[column.declared.type_name])
        self._names.add(_alike(column.name))

    def _column(self, path: Path, number: int) -> Column:
        form, field = FORMS[number], self._entered(path)
        first = all(column < 0 for column in self._of[field])
        declared = ColumnDeclaration(type_name=form.word, type_expression=json.dumps(path, ensure_ascii=False))
        name = self._name(path, "" if first else f"__{form.word}")
        return Column(name=name, type=form.type, semantic=form.semantic, declared=declared)

    def _name(self, path: Path, suffix: str) -> str:
        """Build a name that all targets take and no other column has, whether capitals count or not."""
        plain = "".join(c if (c.isalnum() and c <= _LAST_PLAIN) or c == "_" else "_" for c in "_".join(path)) or "_"
        for number in itertools.count(1):
            end = suffix if number == 1 else f"{suffix}__{number}"
            name = plain.encode()[: _LONGEST - len(end)].decode(errors="ignore") + end
            if _alike(name) not in self._names:
                return name
        raise AssertionError

    # -- arrays -------------------------------------------------------------------------------------------------------

    def _arrays(self) -> None:
        """Build the kernels' arrays again."""
        self.parents = np.array(self._parents, np.int32)
        self.names = np.frombuffer(b"".join(self._texts), np.uint8)
        self.begins = np.cumsum([0, *map(len, self._texts)], dtype=np.int64)
        self.opens = np.array(self._opens, np.bool_)
        self.numbers = np.array(self._of, np.int32)
        self.guess = np.full(len(self._parents) + 1, -1, np.int32)
        self.table = np.full(1 << (2 * len(self._parents)).bit_length(), -1, np.int32)
        k.enter_names(self.parents, self.names, self.begins, self.table)


def _alike(name: str) -> str:
    """Reduce names that any target takes for the same to one text.

    Some compare them in capitals, some in small letters, some whatever their width is.

    >>> _alike("Straße") == _alike("STRASSE"), _alike("ſum") == _alike("sum"), _alike("é") == _alike("e")
    (True, True, False)
    """
    return unicodedata.normalize("NFKC", name).upper().casefold().replace("i\u0307", "i")
