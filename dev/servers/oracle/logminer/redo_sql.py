"""Writes SQL_REDO: the texts of LogMiner, after the public descriptions of them.

Written from those descriptions alone. It shares nothing with the code that reads such texts, so that the two cannot
make the same mistake.
"""

import datetime
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dev.servers.oracle.engine.catalog import Column, Table
from dev.servers.oracle.engine.lobs import is_long
from dev.servers.oracle.values import datatypes, moments, rowids
from dev.servers.oracle.values.datatypes import LOB_KINDS, NATIONAL_KINDS, qualify_names
from dev.servers.oracle.values.moments import Nls
from dev.servers.oracle.wire.codecs import (
    encode_day_second,
    encode_float,
    encode_moment,
    encode_number,
    encode_year_month,
)

LONGEST_TEXT = 4000
UNISTR_PART = 1000
NO_ROW_ID, NO_DELIMITER = "NO_ROWID_IN_STMT", "NO_SQL_DELIMITER"
LOCATORS = {"CLOB": ("loc_c", "buf_c"), "NCLOB": ("loc_nc", "buf_nc"), "BLOB": ("loc_b", "buf_b")}
DECLARE_LOB = (
    "DECLARE \n loc_c CLOB; \n buf_c VARCHAR2(6174); \n loc_b BLOB; \n buf_b RAW(6174); \n loc_nc NCLOB; \n"
    " buf_nc NVARCHAR2(6174); \n e NUMBER; \nBEGIN\n"
)
DECLARE_STRING = (
    "DECLARE\n TempLob CLOB;\n buf_c   VARCHAR2(32767);\n Stmt    CLOB;\nBEGIN\n"
    " DBMS_LOB.CreateTemporary(TempLob, FALSE);\n Stmt := '"
)


@dataclass(frozen=True)
class Writer:
    """Writes the texts of one table the way one dictionary knows it."""

    table: Table | None
    """None when the dictionary does not know the object: names and types are lost."""
    object_id: int
    nls: Nls
    options: frozenset[str]
    stale: bool = False
    """The dictionary has another version of the table: columns are numbers, values are raw."""
    logged: Table | None = None
    """The table as it was when the change was made: gives the raw form of the values."""

    @property
    def owner(self) -> str:
        return self.table.owner if self.table else "UNKNOWN"

    @property
    def name(self) -> str:
        return self.table.name if self.table else f"OBJ# {self.object_id}"

    @property
    def _full(self) -> str:
        return qualify_names(self.owner, self.name)

    @property
    def _raw(self) -> bool:
        return self.stale or self.table is None

    def _columns(self, values: dict[int, Any]) -> list[Column]:
        source = self.logged if self._raw else self.table
        return [column for column in source.columns if column.id in values] if source else []

    def _names(self, column: Column) -> str:
        return f'"COL {self._place(column)}"' if self._raw else f'"{column.name}"'

    def _place(self, column: Column) -> int:
        """Its place in the stored row: dropping a column moves those behind it, setting it unused does not."""
        columns = self.logged.columns if self.logged else []
        return next(place for place, one in enumerate(columns, 1) if one.id == column.id)

    def _end(self) -> str:
        return "" if NO_DELIMITER in self.options else ";"

    # values

    def literal(self, column: Column, value: Any) -> str:
        """Format a value as LogMiner does."""
        if value is None:
            return "NULL"
        if self._raw:
            return f"HEXTORAW('{raw(column, value).hex()}')"
        kind = column.type.kind
        if kind in LOB_KINDS and len(value) == 0:
            return "EMPTY_BLOB()" if kind == "BLOB" else "EMPTY_CLOB()"
        if kind in ("NUMBER", "FLOAT"):
            return f"'{datatypes.number_text(value)}'"
        if kind in ("BINARY_FLOAT", "BINARY_DOUBLE"):
            return f"'{float_text(value, 8 if kind == 'BINARY_FLOAT' else 16)}'"
        if kind == "DATE":
            return f"TO_DATE('{moments.write(moments.read(value), self._date_format())}', '{self._date_format()}')"
        if kind in ("TIMESTAMP", "TIMESTAMP_TZ", "TIMESTAMP_LTZ"):
            return self._timestamp(kind, column.type.scale or 0, value)
        if kind in ("RAW", "BLOB"):
            return f"HEXTORAW('{value.hex()}')"
        if kind == "INTERVAL_DS":
            return f"TO_DSINTERVAL('{_day_second(value, column)}')"
        if kind == "INTERVAL_YM":
            years = column.type.precision or 2
            return f"TO_YMINTERVAL('{value[0]}{value[1:10].lstrip('0').rjust(years, '0')}{value[10:]}')"
        if kind in NATIONAL_KINDS and not value.isascii():
            return unistr(value)
        return quote_text(value)

    def _date_format(self) -> str:
        return self.nls.settings["NLS_DATE_FORMAT"]

    def _timestamp(self, kind: str, digits: int, value: str) -> str:
        moment = moments.read(value)
        if kind == "TIMESTAMP":
            return f"TO_TIMESTAMP('{moments.write(moment, self.nls.settings['NLS_TIMESTAMP_FORMAT'], digits)}')"
        if kind == "TIMESTAMP_LTZ":
            shifted = moment.time + datetime.timedelta(minutes=self.nls.zone)
            moment = moments.Moment(shifted, moment.nanos, self.nls.zone)
        return f"TO_TIMESTAMP_TZ('{moments.write(moment, self.nls.settings['NLS_TIMESTAMP_TZ_FORMAT'], digits)}')"

    # rows

    def insert(self, values: dict[int, Any]) -> str:
        columns = self._columns(values)
        names = ",".join(self._names(column) for column in columns)
        texts = ",".join(self.literal(column, self._first_value(column, values[column.id])) for column in columns)
        return f"insert into {self._full}({names}) values ({texts}){self._end()}"

    def _first_value(self, column: Column, value: Any) -> Any:
        """Return the value that an insert or update shows where the content follows in separate records."""
        if not is_long(column, value):
            return value
        if column.type.kind in LOB_KINDS:
            return b"" if column.type.kind == "BLOB" else ""
        return None

    def update(self, before: dict[int, Any], after: dict[int, Any], row_id: str, *, inline: bool = False) -> str:
        """An update; ``inline`` when it carries the content of LOBs that stay in the row."""
        sets = ", ".join(
            f"{self._names(column)} = {self._inline(column, after[column.id]) if inline else self.literal(column, self._first_value(column, after[column.id]))}"
            for column in self._columns(after)
        )
        return f"update {self._full} set {sets}{self._where(before, row_id)}{self._end()}"

    def _inline(self, column: Column, value: Any) -> str:
        return (
            unistr(value)
            if column.type.kind == "NCLOB" and value and not value.isascii()
            else self.literal(column, value)
        )

    def delete(self, before: dict[int, Any], row_id: str) -> str:
        return f"delete from {self._full}{self._where(before, row_id)}{self._end()}"

    def delete_by_row_id(self, row_id: str) -> str:
        """The undo of an insert: it names the row id whatever the options say."""
        return f"delete from {self._full} where ROWID = '{row_id}'{self._end()}"

    def _where(self, values: dict[int, Any], row_id: str) -> str:
        parts = [
            f"{self._names(column)} IS NULL"
            if values[column.id] is None
            else f"{self._names(column)} = {self.literal(column, values[column.id])}"
            for column in self._columns(values)
            if column.type.kind not in LOB_KINDS
            and column.type.kind != "XMLTYPE"
            and not is_long(column, values[column.id])
        ]
        if NO_ROW_ID not in self.options:
            parts.append(f"ROWID = '{row_id}'")
        return f" where {' and '.join(parts)}" if parts else ""

    # long values

    def locator(self, column: Column, values: dict[int, Any]) -> str:
        """SELECT_LOB_LOCATOR."""
        locator = LOCATORS[column.type.kind][0]
        condition = self._where({key: value for key, value in values.items() if key != column.id}, "")
        return f"{DECLARE_LOB} select {self._names(column)} into {locator} from {self._full}{condition} for update;\n"

    def lob_block(self, column: Column, values: dict[int, Any], call: str | None) -> str:
        """A write, trim or erasure as 23ai shows it: a block that selects its locator."""
        return f"{self.locator(column, values)}\n{call}END;\n\n"

    def lob_write(self, column: Column, offset: int, data: str | bytes) -> str:
        locator, buffer = LOCATORS[column.type.kind]
        text = f"HEXTORAW('{data.hex()}')" if isinstance(data, bytes) else quote_text(data)
        if column.type.kind == "NCLOB" and isinstance(data, str) and not data.isascii():
            text = unistr(data)
        return f" {buffer} := {text}; \n dbms_lob.write({locator}, {len(data)}, {offset}, {buffer});\n"

    def lob_trim(self, column: Column, size: int) -> str:
        return f" dbms_lob.trim({LOCATORS[column.type.kind][0]}, {size});\n"

    def lob_erase(self, column: Column, offset: int, size: int) -> str:
        return f" e := {size}; \n dbms_lob.erase({LOCATORS[column.type.kind][0]}, e, {offset});\n"

    def xml_begin(self, column: Column, values: dict[int, Any]) -> str:
        condition = self._where({key: value for key, value in values.items() if key != column.id}, "")
        return f"XML DOC BEGIN:  select {self._names(column)} from {self._full}{condition}"

    def xml_write(self, data: str, *, binary: bool) -> str:
        encoded = data.encode()
        return (
            f"XML_REDO := HEXTORAW('{encoded.hex()}'):{len(encoded)}"
            if binary
            else f"XML_REDO := {quote_text(data)}:{len(data)}"
        )

    def xml_amount(self, data: str) -> str:
        """A piece of a document as 23ai shows it."""
        return f"XML_REDO := {quote_text(data)}\n amount: {len(data)}"

    def string_begin(self, column: Column, values: dict[int, Any]) -> str:
        rest = {key: value for key, value in values.items() if key != column.id}
        statement = f"update {self._full} set {self._names(column)} = :DATA{self._where(rest, '')}"
        return DECLARE_STRING + statement.replace("'", "''") + ";';"

    def string_write(self, data: str | bytes) -> str:
        text = f"HEXTORAW('{data.hex()}')" if isinstance(data, bytes) else quote_text(data)
        return f"  buf_c := {text};\n DBMS_LOB.WriteAppend(TempLob, {len(data)}, buf_c);\n"


# texts


def quote_text(text: str) -> str:
    """A string literal."""
    return "'" + text.replace("'", "''") + "'"


def unistr(text: str) -> str:
    """National text: everything that is not plain ASCII as code units, long texts in parts."""
    parts = []
    for start in range(0, len(text), UNISTR_PART):
        units = text[start : start + UNISTR_PART].encode("utf-16-be")
        characters = [units[at : at + 2] for at in range(0, len(units), 2)]
        parts.append("UNISTR('" + "".join(_unit(character) for character in characters) + "')")
    return " || ".join(parts)


def _unit(unit: bytes) -> str:
    character = chr(int.from_bytes(unit, "big"))
    if character == "'":
        return "''"
    return character if " " <= character <= "~" and character != "\\" else f"\\{unit.hex().upper()}"


def float_text(value: float | str, digits: int) -> str:
    """A binary float: ``1.10000002E+000``."""
    if value == "nan":
        return "Nan"
    number = float(value)
    if number in (float("inf"), float("-inf")):
        return "Inf" if number > 0 else "-Inf"
    if number == 0:
        return "0"
    mantissa, exponent = f"{number:.{digits}E}".split("E")
    return f"{mantissa}E{int(exponent):+04d}"


def _day_second(value: str, column: Column) -> str:
    days = value[1:10].lstrip("0").rjust(column.type.precision or 2, "0")
    fraction = value[20:][: column.type.scale or 0]
    return f"{value[0]}{days} {value[11:19]}{'.' if fraction else ''}{fraction}"


def raw(column: Column, value: Any) -> bytes:
    """A value as it lies in a block: what is shown when the dictionary does not fit."""
    kind = column.type.kind
    if kind == "ROWID":
        return stored_row_id(value)
    if isinstance(value, bytes):
        return value
    if kind == "INTERVAL_DS":
        return encode_day_second(value)
    if kind == "INTERVAL_YM":
        return encode_year_month(value)
    if kind in ("NUMBER", "FLOAT"):
        return encode_number(value)
    if kind in ("DATE", "TIMESTAMP", "TIMESTAMP_TZ", "TIMESTAMP_LTZ"):
        return encode_moment(value, kind)
    if kind in ("BINARY_FLOAT", "BINARY_DOUBLE"):
        return encode_float(value, ">f" if kind == "BINARY_FLOAT" else ">d")
    return str(value).encode("utf-16-be" if kind in NATIONAL_KINDS else "utf-8")


def stored_row_id(value: bytes | str) -> bytes:
    """The ten bytes of a ROWID column: object, then ten bits of the file and 22 of the block, then the row."""
    object_id, file, block, slot = rowids.parts(value)
    return struct.pack(">IIH", object_id, file << 22 | block, slot)


def pieces(text: str) -> Iterator[tuple[str, int]]:
    """A text in rows of at most 4,000 bytes with their CSF flags."""
    start = 0
    while True:
        end = min(len(text), start + LONGEST_TEXT)
        while len(text[start:end].encode()) > LONGEST_TEXT:
            end -= max(1, (len(text[start:end].encode()) - LONGEST_TEXT) // 4)
        yield text[start:end], int(end < len(text))
        start = end
        if start >= len(text):
            return
