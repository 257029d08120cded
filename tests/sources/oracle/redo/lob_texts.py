"""Redo texts of long values, written from the table of shapes and the public descriptions of LogMiner's sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.sources.oracle.kernels.operation_codes import NO_ROW_ID
from airflow_provider_cdc.sources.oracle.redo.lob_assembler import AssembledRows, read_with_lobs
from airflow_provider_cdc.sources.oracle.redo.redo_statement_reader import RedoReader
from tests.sources.oracle.redo.redo_tables import config, images, table

TYPES = {
    "ID": "NUMBER(9)", "V": "VARCHAR2(60)", "S": "VARCHAR2(32767)", "C": "CLOB", "D": "NCLOB", "B": "BLOB", "X": "XMLTYPE",
}  # fmt: skip
NOTHING = {"C": None, "D": None, "B": None, "S": None, "X": None}
NAMES = {"CLOB": "c", "NCLOB": "nc", "BLOB": "b"}
DECLARE = "DECLARE \n loc_c CLOB; \n buf_c VARCHAR2(6174); \n loc_b BLOB; \n buf_b RAW(6174); \n loc_nc NCLOB; \n e NUMBER; \nBEGIN\n"


class MinedLine(NamedTuple):
    """A LogMiner row."""

    code: int
    text: str | None
    row_id: str | None = NO_ROW_ID
    transaction: int = 1


def lob_reader(*, key: tuple[str, ...] = ("ID",), **properties: Any) -> RedoReader:
    given = config(**{"lob.enabled": True, **properties})
    schema = table(TYPES, given).model_copy(update={"key": key})
    return RedoReader(schema, given, ignored=("SHAPE",))


def quote_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def value(column: str, given: Any) -> str:
    """A literal; an empty LOB is a function."""
    if given is None:
        return "NULL"
    if column in ("C", "D", "B") and not given:
        return "EMPTY_BLOB()" if column == "B" else "EMPTY_CLOB()"
    if isinstance(given, bytes):
        return f"HEXTORAW('{given.hex()}')"
    return quote_text(str(given))


def _where_clause(named: dict[str, Any]) -> str:
    return " and ".join(f'"{n}" IS NULL' if v is None else f'"{n}" = {value(n, v)}' for n, v in named.items())


def insert(transaction: int = 1, row_id: str = NO_ROW_ID, **row: Any) -> MinedLine:
    names = ",".join(f'"{n}"' for n in row)
    values = ",".join(value(n, v) for n, v in row.items())
    return MinedLine(1, f'insert into "SHOP"."PARTS"({names}) values ({values});', row_id, transaction)


def update(named: dict[str, Any], transaction: int = 1, row_id: str = NO_ROW_ID, **changed: Any) -> MinedLine:
    sets = ", ".join(f'"{n}" = {value(n, v)}' for n, v in changed.items())
    return MinedLine(3, f'update "SHOP"."PARTS" set {sets} where {_where_clause(named)};', row_id, transaction)


def delete(named: dict[str, Any], transaction: int = 1, row_id: str = NO_ROW_ID) -> MinedLine:
    return MinedLine(2, f'delete from "SHOP"."PARTS" where {_where_clause(named)};', row_id, transaction)


def locator(column: str, named: dict[str, Any], row_id: str = NO_ROW_ID, transaction: int = 1) -> MinedLine:
    name = NAMES[TYPES[column]]
    condition = f" where {_where_clause(named)}" if named else ""
    text = f'{DECLARE} select "{column}" into loc_{name} from "SHOP"."PARTS"{condition} for update;\n'
    return MinedLine(9, text, row_id, transaction)


def write(column: str, data: str | bytes, offset: int, transaction: int = 1, length: int | None = None) -> MinedLine:
    name = NAMES[TYPES[column]]
    text = f" buf_{name} := {value('', data)}; \n  dbms_lob.write(loc_{name}, {length or len(data)}, {offset}, buf_{name});\n"
    return MinedLine(10, text, NO_ROW_ID, transaction)


def trim(column: str, length: int, transaction: int = 1) -> MinedLine:
    return MinedLine(11, f" dbms_lob.trim(loc_{NAMES[TYPES[column]]}, {length});\n", NO_ROW_ID, transaction)


def erase(column: str, offset: int, length: int, transaction: int = 1) -> MinedLine:
    return MinedLine(
        29, f" e := {length}; \n dbms_lob.erase(loc_{NAMES[TYPES[column]]}, e, {offset});\n", NO_ROW_ID, transaction
    )


def as_blocks(lines: Sequence[MinedLine]) -> list[MinedLine]:
    """The same lines as 23ai has them: a locator without a text, and blocks that select it again.

    Each change in place has its locator; only its writes have the ROWID as well.
    """
    found: list[MinedLine] = []
    begins: dict[int, tuple[MinedLine, bool]] = {}
    for line in lines:
        begin, located = begins.get(line.transaction, (None, False))
        if line.code == 9:
            begins[line.transaction] = line, True
            found.append(line._replace(text=None))
        elif line.code in (10, 11, 29) and begin is not None:
            if begin.row_id != NO_ROW_ID and not located:
                found.append(begin._replace(text=None))
            begins[line.transaction] = begin, False
            call = (line.text or "").replace(" e := ", " e_len :=  ").replace(", e, ", ", e_len, ")
            text = f"{begin.text}\n{call}END;\n\n".replace(" e NUMBER", " e_len NUMBER")
            found.append(line._replace(text=text, row_id=begin.row_id if line.code == 10 else NO_ROW_ID))
        else:
            begins.pop(line.transaction, None)
            found.append(line)
    return found


def xml(named: dict[str, Any], *parts: str | bytes | None, transaction: int = 1) -> list[MinedLine]:
    begin = f'XML DOC BEGIN:  select "X" from "SHOP"."PARTS" where {_where_clause(named)}'
    writes = [f"XML_REDO := {value('', p)}" + ("" if p is None else f":{len(p)}") for p in parts]
    texts = [(68, begin), *((70, w) for w in writes), (71, None)]
    return [MinedLine(code, text, NO_ROW_ID, transaction) for code, text in texts]


def string(named: dict[str, Any], *parts: str, transaction: int = 1, column: str = "S") -> list[MinedLine]:
    statement = f'update "SHOP"."PARTS" set "{column}" = :DATA where {_where_clause(named)};'
    begin = f"DECLARE\n TempLob CLOB;\n Stmt    CLOB;\nBEGIN\n Stmt := {quote_text(statement)};"
    writes = [f"  buf_c := {quote_text(p)};\n DBMS_LOB.WriteAppend(TempLob, {len(p)}, buf_c);\n" for p in parts]
    texts = [(91, begin), *((92, w) for w in writes), (93, None)]
    return [MinedLine(code, text, NO_ROW_ID, transaction) for code, text in texts]


def assemble(reader: RedoReader, lines: Sequence[MinedLine], undone: int = -1) -> AssembledRows:
    return read_with_lobs(
        reader,
        [line.text for line in lines],  # type: ignore[arg-type,misc]
        np.array([line.code for line in lines], np.int16),
        np.array([line.transaction for line in lines]),
        [line.row_id for line in lines],
        np.arange(len(lines)) == undone,
    )


def shown_rows(found: AssembledRows, schema: TableSchema) -> list[tuple[int, str, dict[str, Any]]]:
    """Per row: where it begins, its operation, and its images; a value that no one knows is ``"?"``."""
    rows = []
    for at in range(len(found.rows)):
        row = images(found.rows, at, schema)
        for c, name in enumerate(schema.column_names):
            if found.unknown is not None and found.unknown[c, at]:
                assert name not in row["after"]
                row["after"][name] = "?"
        rows.append((int(found.origin[at]), "rcud"[found.rows.op[at]], row))
    return rows
