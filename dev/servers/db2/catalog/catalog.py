"""Fills SYSCAT: what the engine knows of tables, in the words of Db2."""

from __future__ import annotations

import re
import threading
from typing import Any

from dev.servers.db2.engine.driver import Connection, Row, run_atomically
from dev.servers.db2.errors import Db2Error, undefined_object_error
from dev.servers.db2.log.log import Log, Table, columns_of
from dev.servers.db2.log.positions import text
from dev.servers.db2.statements.declarations import BITS, UNICODE, ColumnDeclaration

HIDDEN_SCHEMAS = (
    "DB2LOG",
    "DB2CAT",
    "SYS",
    "SYSIBM",
    "SYSCAT",
    "SYSCS_UTIL",
    "SYSCS_DIAG",
    "SYSFUN",
    "SYSPROC",
    "SYSSTAT",
    "NULLID",
    "SQLJ",
    "SYSTEM",
)
UNITS = {"CODEUNITS32": 4, "CODEUNITS16": 2}
"""Bytes of a unit, in which lengths with a unit are counted."""
LENGTHS = {
    "SMALLINT": 2,
    "INTEGER": 4,
    "BIGINT": 8,
    "REAL": 4,
    "DOUBLE": 8,
    "DATE": 4,
    "TIME": 3,
    "TIMESTAMP": 10,
    "BOOLEAN": 1,
}
STRINGS = {"CHAR": "CHARACTER", "VARCHAR": "VARCHAR", "CLOB": "CLOB", "LONG VARCHAR": "LONG VARCHAR"}
BINARIES = {"CHAR () FOR BIT DATA": "CHARACTER", "VARCHAR () FOR BIT DATA": "VARCHAR", "BLOB": "BLOB"}
_REFERENCES = (
    "SELECT C.CONSTRAINTNAME, S.SCHEMANAME, P.TABLENAME, K.CONSTRAINTNAME FROM SYS.SYSFOREIGNKEYS F JOIN SYS.SYSCONSTRAINTS C ON C.CONSTRAINTID = F.CONSTRAINTID "
    "JOIN SYS.SYSTABLES T ON T.TABLEID = C.TABLEID JOIN SYS.SYSSCHEMAS A ON A.SCHEMAID = T.SCHEMAID JOIN SYS.SYSCONSTRAINTS K ON K.CONSTRAINTID = F.KEYCONSTRAINTID "
    "JOIN SYS.SYSTABLES P ON P.TABLEID = K.TABLEID JOIN SYS.SYSSCHEMAS S ON S.SCHEMAID = P.SCHEMAID WHERE A.SCHEMANAME = ? AND T.TABLENAME = ?"
)
"""Foreign keys of a table: their names, and the tables and keys that they refer to."""
_OF_TABLE = "JOIN SYS.SYSSCHEMAS S ON S.SCHEMAID = T.SCHEMAID WHERE S.SCHEMANAME = ? AND T.TABLENAME = ?"
_NUMBERS = f"SELECT C.COLUMNNUMBER, C.COLUMNNAME FROM SYS.SYSCOLUMNS C JOIN SYS.SYSTABLES T ON T.TABLEID = C.REFERENCEID {_OF_TABLE}"
_INDEXES = (
    "SELECT G.CONGLOMERATENAME, G.DESCRIPTOR, C.CONSTRAINTNAME, C.TYPE FROM SYS.SYSCONGLOMERATES G JOIN SYS.SYSTABLES T ON T.TABLEID = G.TABLEID LEFT JOIN SYS.SYSKEYS K "
    f"ON K.CONGLOMERATEID = G.CONGLOMERATEID LEFT JOIN SYS.SYSCONSTRAINTS C ON C.CONSTRAINTID = K.CONSTRAINTID {_OF_TABLE} AND G.ISINDEX"
)
"""Indexes of a table. The engine's procedure for them is not asked: the driver cannot pass all names beyond ASCII (see :func:`columns_of`)."""
_PLACES = re.compile(r"(\d+)( DESC)?")
"""Numbers of columns in the engine's description of an index, such as ``UNIQUE BTREE (3, 1 DESC)``."""
BY_TABLE = ("COLUMNS", "TABCONST", "FOREIGNKEYS", "KEYCOLUSE", "INDEXES", "TABLES")


class Catalog:
    """The catalogue of one database."""

    def __init__(self, connection: Connection, log: Log) -> None:
        self._connection, self._log = connection, log
        self._lock = threading.RLock()
        self._complete = False

    def complete(self) -> None:
        """Make it right after a start, once: with what a server that was killed had no time for, and in a new database with the control tables."""
        with self._lock, run_atomically(self._connection):
            if not self._complete:
                self.refresh_all(changed_only=True)
                self._complete = True

    def refresh_all(self, *, changed_only: bool = False) -> None:
        """All tables of users, or those whose number of columns is another one than that in the catalogue."""
        with self._lock, run_atomically(self._connection):
            found = self._tables("")
            rows = self._connection.rows("SELECT TABSCHEMA, TABNAME, COLCOUNT FROM DB2CAT.TABLES")
            known = {(row[0], row[1]): row[2] for row in rows}
            for table, (_, _, columns) in sorted(found.items()):
                if not changed_only or known.get(table) != columns:
                    self.refresh(table)
            for table in set(known) - set(found):
                self._forget(table)
            self._connection.commit()

    def refresh(self, table: Table) -> None:
        """Update the catalogue's rows of a table, which may be new or gone."""
        with self._lock, run_atomically(self._connection):
            rows = self._tables(f"AND S.SCHEMANAME = {text(table[0])} AND T.TABLENAME = {text(table[1])}")
            if table not in rows:
                self._forget(table)
            else:
                self._write(table, *rows[table][:2])
            self._connection.commit()

    def declare(self, table: Table, columns: dict[str, ColumnDeclaration]) -> None:
        """Remember what columns were declared as."""
        with self._lock, run_atomically(self._connection):
            for name, declared in columns.items():
                self._connection.execute(
                    "DELETE FROM DB2CAT.DECLARED WHERE TABSCHEMA = ? AND TABNAME = ? AND COLNAME = ?", (*table, name)
                )
                units, hidden = text(declared.units) if declared.units else "NULL", "I" if declared.hidden else " "
                self._connection.execute(
                    f"INSERT INTO DB2CAT.DECLARED VALUES (?, ?, ?, ?, ?, ?, {units}, NULL, ?, '{hidden}', ?)",
                    (*table, name, declared.type, declared.length, declared.scale, declared.code_page, declared.schema),
                )
            self._connection.commit()

    def renamed(self, old: Table, new: Table) -> None:
        """A table has another name: what was declared of it, granted and counted stays."""
        with self._lock, run_atomically(self._connection):
            for name in ("DECLARED", "REMARKS", "TABAUTH"):
                self._connection.execute(
                    f"UPDATE DB2CAT.{name} SET TABSCHEMA = ?, TABNAME = ? WHERE TABSCHEMA = ? AND TABNAME = ?",
                    (*new, *old),
                )
            self._connection.commit()

    def column_renamed(self, table: Table, old: str, new: str) -> None:
        """A column has another name: what was declared of it stays."""
        with self._lock, run_atomically(self._connection):
            for name in ("DECLARED", "REMARKS"):
                self._connection.execute(
                    f"UPDATE DB2CAT.{name} SET COLNAME = ? WHERE TABSCHEMA = ? AND TABNAME = ? AND COLNAME = ?",
                    (new, *table, old),
                )
            self._connection.commit()

    def comment(self, table: Table, comments: dict[str, str]) -> None:
        """Carry out ``COMMENT ON``, in a separate transaction: column → comment, of the table itself under an empty name. It alters no structure.

        :raises Db2Error: there is no such table or column
        """
        with self._lock, run_atomically(self._connection):
            run, of_table = self._connection, "TABSCHEMA = ? AND TABNAME = ?"
            columns = {row[0] for row in run.rows(f"SELECT COLNAME FROM DB2CAT.COLUMNS WHERE {of_table}", table)}
            if not columns:
                raise undefined_object_error(".".join(table))
            for column, remark in comments.items():
                if column and column not in columns:
                    raise Db2Error(-205, "42703", column, ".".join(table))
                if len(remark.encode()) > 254:
                    raise Db2Error(-433, "22001", remark)
                run.execute(f"DELETE FROM DB2CAT.REMARKS WHERE {of_table} AND COLNAME = ?", (*table, column))
                if remark:
                    run.execute(f"INSERT INTO DB2CAT.REMARKS VALUES (?, ?, ?, {text(remark)})", (*table, column))
                name, key = ("COLUMNS", (*table, column)) if column else ("TABLES", table)
                where = of_table + (" AND COLNAME = ?" if column else "")
                run.execute(
                    f"UPDATE DB2CAT.{name} SET REMARKS = {text(remark) if remark else 'NULL'} WHERE {where}", key
                )
            run.commit()

    def distinct_types(self) -> dict[Table, str]:
        """The words of the type that each distinct type is made of."""
        with self._lock, run_atomically(self._connection):
            rows = self._connection.rows(
                "SELECT TYPESCHEMA, TYPENAME, WORDS FROM DB2CAT.DATATYPES WHERE METATYPE = 'T'"
            )
            self._connection.commit()
            return {(row[0], row[1]): row[2] for row in rows}

    def create_type(self, schema: str, name: str, words: str) -> None:
        """``CREATE TYPE … AS …``."""
        match = re.match(r"(\w+(?:\s+VARYING)?)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?", words)
        source = match.group(1).upper() if match else ""
        source = {"INT": "INTEGER", "CHAR": "CHARACTER", "DEC": "DECIMAL", "NUMERIC": "DECIMAL"}.get(source, source)
        length = int(match.group(2) or 0) if match else 0
        scale = int(match.group(3) or 0) if match else 0
        self.drop_type(schema, name)
        with self._lock, run_atomically(self._connection):
            self._insert("DATATYPES", {
                "TYPESCHEMA": schema, "TYPENAME": name, "SOURCESCHEMA": "SYSIBM", "SOURCENAME": source, "METATYPE": "T",
                "LENGTH": LENGTHS.get(source, length), "SCALE": scale, "CODEPAGE": UNICODE if source in STRINGS.values() else BITS, "WORDS": words,
            })  # fmt: skip
            self._connection.commit()

    def drop_type(self, schema: str, name: str) -> None:
        """``DROP TYPE``."""
        with self._lock, run_atomically(self._connection):
            self._connection.execute(
                "DELETE FROM DB2CAT.DATATYPES WHERE TYPESCHEMA = ? AND TYPENAME = ?", (schema, name)
            )
            self._connection.commit()

    def run_stats(self, table: Table) -> None:
        """Count the rows of a table, as RUNSTATS does."""
        with self._lock, run_atomically(self._connection):
            name = ".".join('"' + part.replace('"', '""') + '"' for part in table)
            count = int(self._connection.scalar(f"SELECT COUNT(*) FROM {name} WITH UR"))
            self._connection.execute(
                f"UPDATE DB2CAT.TABLES SET CARD = {count}, NPAGES = {count // 100 + 1}, FPAGES = {count // 100 + 1}, STATS_TIME = CURRENT_TIMESTAMP "
                "WHERE TABSCHEMA = ? AND TABNAME = ?",
                table,
            )
            self._connection.commit()

    def _tables(self, where: str) -> dict[Table, tuple[str, int, int]]:
        """Kind, number of the conglomerate and number of columns of each table."""
        rows = self._connection.rows(
            "SELECT S.SCHEMANAME, T.TABLENAME, T.TABLETYPE, MIN(C.CONGLOMERATENUMBER), COUNT(DISTINCT L.COLUMNNUMBER) "
            "FROM SYS.SYSTABLES T JOIN SYS.SYSSCHEMAS S ON T.SCHEMAID = S.SCHEMAID "
            f"JOIN SYS.SYSCOLUMNS L ON L.REFERENCEID = T.TABLEID LEFT JOIN SYS.SYSCONGLOMERATES C ON C.TABLEID = T.TABLEID WHERE T.TABLETYPE IN ('T', 'V') {where} "
            "GROUP BY S.SCHEMANAME, T.TABLENAME, T.TABLETYPE"
        )
        return {(row[0], row[1]): (row[2], row[3] or 0, row[4]) for row in rows if row[0] not in HIDDEN_SCHEMAS}

    def _forget(self, table: Table) -> None:
        run = self._connection
        run.execute(
            "DELETE FROM DB2CAT.INDEXCOLUSE WHERE INDSCHEMA || '.' || INDNAME IN (SELECT INDSCHEMA || '.' || INDNAME FROM DB2CAT.INDEXES WHERE TABSCHEMA = ? AND TABNAME = ?)",
            table,
        )
        for name in (*BY_TABLE, "DECLARED", "REMARKS", "TABAUTH"):
            run.execute(f"DELETE FROM DB2CAT.{name} WHERE TABSCHEMA = ? AND TABNAME = ?", table)

    def _write(self, table: Table, kind: str, conglomerate: int) -> None:
        run = self._connection
        columns, indexes = self._columns(table), self._indexes(table)
        keys = {
            column: number
            for index in indexes.values()
            if index["rule"] == "P"
            for number, (column, _) in enumerate(index["columns"], 1)
        }
        before = run.rows(
            "SELECT CREATE_TIME, ALTER_TIME, CARD FROM DB2CAT.TABLES WHERE TABSCHEMA = ? AND TABNAME = ?", table
        )
        was = run.rows(
            'SELECT COLNAME, TYPENAME, LENGTH, SCALE, "NULLS", "DEFAULT" FROM DB2CAT.COLUMNS WHERE TABSCHEMA = ? AND TABNAME = ? ORDER BY COLNO',
            table,
        )
        now = run.scalar("VALUES CURRENT_TIMESTAMP")
        shape = [(c["COLNAME"], c["TYPENAME"], c["LENGTH"], c["SCALE"], c["NULLS"], c["DEFAULT"]) for c in columns]
        created = before[0][0] if before else now
        altered = before[0][1] if before and [tuple(row) for row in was] == shape else now
        run.execute(
            "DELETE FROM DB2CAT.INDEXCOLUSE WHERE INDSCHEMA || '.' || INDNAME IN (SELECT INDSCHEMA || '.' || INDNAME FROM DB2CAT.INDEXES WHERE TABSCHEMA = ? AND TABNAME = ?)",
            table,
        )
        for name in BY_TABLE:
            run.execute(f"DELETE FROM DB2CAT.{name} WHERE TABSCHEMA = ? AND TABNAME = ?", table)
        captured = "Y" if self._log.active(table) else "N"
        remarks = self._remarks(table, [column["COLNAME"] for column in columns])
        self._insert("TABLES", {
            "TABSCHEMA": table[0], "TABNAME": table[1], "OWNER": "DB2INST1", "TYPE": kind, "CREATE_TIME": created, "ALTER_TIME": altered,
            "INVALIDATE_TIME": altered, "COLCOUNT": len(columns), "TABLEID": conglomerate % 32768, "TBSPACEID": 2, "TBSPACE": "USERSPACE1",
            "CARD": before[0][2] if before else -1, "KEYCOLUMNS": len(keys), "KEYUNIQUE": sum(1 for index in indexes.values() if index["rule"] == "U"),
            "DATACAPTURE": captured, "REMARKS": remarks.get(""),
        })  # fmt: skip
        for column in columns:
            name = column["COLNAME"]
            more = {"KEYSEQ": keys.get(name), "REMARKS": remarks.get(name)}
            self._insert("COLUMNS", {"TABSCHEMA": table[0], "TABNAME": table[1], **column, **more})
        self._write_keys(table, indexes, now)
        of_table = {"TABSCHEMA": table[0], "TABNAME": table[1], "OWNER": "DB2INST1"}
        for constraint, schema, other, key in run.rows(_REFERENCES, table):
            self._insert("TABCONST", {"CONSTNAME": constraint, **of_table, "TYPE": "F"})
            refers = {"REFTABSCHEMA": schema, "REFTABNAME": other, "REFKEYNAME": key}
            self._insert("FOREIGNKEYS", {"CONSTNAME": constraint, **of_table, **refers})

    def _remarks(self, table: Table, columns: list[str]) -> dict[str, str]:
        """Read the comments of a table and of its columns; those of dropped columns are gone."""
        rows = self._connection.rows(
            "SELECT COLNAME, REMARKS FROM DB2CAT.REMARKS WHERE TABSCHEMA = ? AND TABNAME = ?", table
        )
        for name in {row[0] for row in rows} - {"", *columns}:
            self._connection.execute(
                "DELETE FROM DB2CAT.REMARKS WHERE TABSCHEMA = ? AND TABNAME = ? AND COLNAME = ?", (*table, name)
            )
        return {row[0]: row[1] for row in rows}

    def _write_keys(self, table: Table, indexes: dict[str, dict[str, Any]], now: Any) -> None:
        of_table = {"TABSCHEMA": table[0], "TABNAME": table[1]}
        for order, (name, index) in enumerate(sorted(indexes.items()), 1):
            listed = "".join(f"{'-' if down else '+'}{column}" for column, down in index["columns"])
            count, rule = len(index["columns"]), index["rule"]
            self._insert("INDEXES", {
                "INDSCHEMA": index["schema"], "INDNAME": name, "OWNER": "DB2INST1", **of_table, "COLNAMES": listed, "UNIQUERULE": rule,
                "COLCOUNT": count, "UNIQUE_COLCOUNT": -1 if rule == "D" else count, "IID": order, "CREATE_TIME": now,
                "SYSTEM_REQUIRED": 1 if index["constraint"] else 0,
            })  # fmt: skip
            for sequence, (column, down) in enumerate(index["columns"], 1):
                self._insert(
                    "INDEXCOLUSE",
                    {
                        "INDSCHEMA": index["schema"],
                        "INDNAME": name,
                        "COLNAME": column,
                        "COLSEQ": sequence,
                        "COLORDER": "D" if down else "A",
                    },
                )
            if index["constraint"]:
                self._insert(
                    "TABCONST", {"CONSTNAME": index["constraint"], **of_table, "OWNER": "DB2INST1", "TYPE": rule}
                )
                for sequence, (column, _) in enumerate(index["columns"], 1):
                    self._insert(
                        "KEYCOLUSE",
                        {"CONSTNAME": index["constraint"], **of_table, "COLNAME": column, "COLSEQ": sequence},
                    )

    def _insert(self, name: str, values: dict[str, Any]) -> None:
        given = {column: value for column, value in values.items() if value is not None}
        names = ", ".join(f'"{column}"' for column in given)
        written = ", ".join(_literal(value) for value in given.values())
        self._connection.execute(f"INSERT INTO DB2CAT.{name} ({names}) VALUES ({written})")

    def _columns(self, table: Table) -> list[dict[str, Any]]:
        rows = columns_of(self._connection, table)
        declared = {
            row[0]: ColumnDeclaration(row[1], row[2], row[3], row[4], row[5], row[6] == "I", row[7])
            for row in self._connection.rows(
                "SELECT COLNAME, TYPENAME, LENGTH, SCALE, STRINGUNITS, CODEPAGE, HIDDEN, TYPESCHEMA FROM DB2CAT.DECLARED WHERE TABSCHEMA = ? AND TABNAME = ?",
                table,
            )
        }
        return [_column(row, declared.get(row[3])) for row in rows]

    def _indexes(self, table: Table) -> dict[str, dict[str, Any]]:
        numbers = dict(self._connection.rows(_NUMBERS, table))
        found: dict[str, dict[str, Any]] = {}
        for name, described, constraint, kind in self._connection.rows(_INDEXES, table):
            descriptor = bytes(described).decode()
            unique, places = descriptor.startswith("UNIQUE"), _PLACES.findall(descriptor)
            found[name] = {
                "schema": table[0],
                "rule": kind if kind in ("P", "U") else "U" if unique else "D",
                "constraint": constraint if kind in ("P", "U") else None,
                "columns": [(numbers[int(place)], bool(descending)) for place, descending in places],
            }
        return dict(sorted(found.items()))


def _literal(value: Any) -> str:
    if isinstance(value, bool | int):
        return str(int(value))
    if hasattr(value, "isoformat"):
        return f"TIMESTAMP('{value}')"
    return text(str(value))


def _column(row: Row, declared: ColumnDeclaration | None) -> dict[str, Any]:
    kind, size, scale, default = row[5], row[6] or 0, row[8] or 0, row[12]
    units, page, length = None, BITS, LENGTHS.get(kind, size)
    name = kind
    if kind in STRINGS:
        name, page, units = STRINGS[kind], UNICODE, "OCTETS"
    elif kind in BINARIES:
        name = BINARIES[kind]
    elif kind == "TIMESTAMP":
        scale = 6
    elif kind not in ("DECIMAL", "NUMERIC"):
        scale = 0
    if kind == "NUMERIC":
        name = "DECIMAL"
    if declared is not None and declared.schema != "SYSIBM":
        name = declared.type
    elif declared is not None:
        name, length, scale = declared.type, declared.length, declared.scale
        units, page = declared.units, declared.code_page
    identity = str(default or "").startswith(("AUTOINCREMENT", "GENERATED_BY_DEFAULT"))
    generated = " " if not identity else "A" if str(default).startswith("AUTOINCREMENT") else "D"
    return {
        "COLNAME": row[3], "COLNO": row[16] - 1, "TYPESCHEMA": declared.schema if declared else "SYSIBM",
        "TYPENAME": name, "LENGTH": length, "SCALE": scale, "TYPESTRINGUNITS": units,
        "STRINGUNITSLENGTH": length // UNITS.get(units, 1) if units else None, "DEFAULT": None if identity else default, "NULLS": "Y" if row[10] else "N", "CODEPAGE": page,
        "IDENTITY": "Y" if identity else "N", "GENERATED": generated, "HIDDEN": "I" if declared and declared.hidden else " ",
    }  # fmt: skip
