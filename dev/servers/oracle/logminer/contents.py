"""The rows of V$LOGMNR_CONTENTS, made out of redo records and a dictionary."""

import marshal
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from dev.servers.oracle.engine import lobs
from dev.servers.oracle.engine.catalog import Column, Table
from dev.servers.oracle.logminer.redo_sql import Writer, pieces
from dev.servers.oracle.redo import redo
from dev.servers.oracle.redo.logminer_columns import NAMES, OPERATIONS, rs_id
from dev.servers.oracle.session_protocol import Session
from dev.servers.oracle.values import rowids
from dev.servers.oracle.values.datatypes import UNLOGGED_KINDS, UNSUPPORTED_KINDS

MARKS = {redo.START: "set transaction read write", redo.COMMIT: "commit", redo.ROLLBACK: "rollback"}
UNKNOWN_SEQUENCE = 0xFFFFFFFF
UNKNOWN = "UNKNOWN"
NO_RECORD = " 0x000000.00000000.0000 "
"""RS_ID of a ROLLBACK whose XID is not whole."""
CONTEXT = {redo.INSERT, redo.UPDATE, redo.DELETE, lobs.SELECT_LOCATOR, lobs.XML_BEGIN, lobs.STRING_BEGIN}
LOB_PIECES = {redo.LOB_WRITE, redo.LOB_TRIM, redo.LOB_ERASE}
PIECES = LOB_PIECES | {lobs.XML_WRITE, lobs.XML_END, lobs.STRING_WRITE, lobs.STRING_END}
VALID, MAY_NOT_RUN = 0, 2
NOT_RUNNABLE = "XML sql_redo not re-executable"
LOB_NOT_RUNNABLE = "LOB sql_redo not re-executable"
UNSUPPORTED = {"OPERATION_CODE": 255, "OPERATION": "UNSUPPORTED", "SQL_REDO": "Unsupported", "STATUS": MAY_NOT_RUN}
MISMATCH = "Dictionary Version Mismatch"


class Renderer:
    """Makes rows with one dictionary and the options of one START_LOGMNR."""

    def __init__(self, session: Session, options: frozenset[str], dictionary: int | None, start: int) -> None:
        self._session = session
        self._database = session.database
        self._catalog = session.engine.catalog
        self._options = options
        self._dictionary = dictionary
        self._start = start
        self._writers: dict[tuple[int, int], Writer] = {}
        self._delimiter = "" if "NO_SQL_DELIMITER" in options else ";"
        self._started: set[int] = set()
        self._places: dict[int, int] = {}
        self._in_range: set[int] = set()
        """Transactions of which a change, or the beginning of a long value, was mined."""

    def rows(
        self, records: Iterable[tuple[Any, ...]], commit: tuple[int, str] | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """The rows of records; those of one long text follow each other."""
        for record in records:
            facts = self._facts(record, commit)
            if facts is None:
                continue
            text = facts.get("SQL_REDO")
            for part, more in pieces(text) if text else [(text, 0)]:
                facts["SQL_REDO"], facts["CSF"] = part, more
                yield tuple([facts.get(name) for name in NAMES])

    def _facts(self, record: tuple[Any, ...], commit: tuple[int, str] | None) -> dict[str, Any] | None:
        (_, scn, thread, sequence, at, segment, slot, serial, op, undo, object_id, version, row, user, _, body) = (
            record[:16]
        )
        container, number, client, place = record[16:]
        if op == lobs.HIDDEN:
            return None
        content: Any = None if body is None else marshal.loads(body)
        if op == redo.INJECTED:
            return self._injected(record, content)
        if op == redo.START:
            self._started.add(serial)
        user, client = (user, client) if serial in self._started else (UNKNOWN, None)  # known from the START alone
        partial = self._database.partial_xids and (undo or op == redo.ROLLBACK)
        number = UNKNOWN_SEQUENCE if partial else number
        facts: dict[str, Any] = {
            "SCN": scn, "TIMESTAMP": at, "THREAD#": thread, "SEQUENCE#": sequence, "USERNAME": user, "XIDUSN": segment,
            "XIDSLT": slot, "XIDSQN": number, "XID": redo.Xid(segment, slot, number).raw, "OPERATION_CODE": op,
            "OPERATION": OPERATIONS[op], "ROLLBACK": undo, "RS_ID": rs_id(sequence, place), "SSN": 0, "STATUS": VALID,
            "ROW_ID": rowids.EMPTY, "DATA_OBJ#": object_id, "DATA_OBJV#": version, "DATA_OBJD#": 0, "RBASQN": sequence,
            "RBABLK": place // 8, "RBABYTE": place % 8 * 64, "CON_ID": int(self._database.cdb), "SESSION#": 1, "SERIAL#": 1,
            "SESSION_INFO": UNKNOWN if user == UNKNOWN else f"login_username={user}", "SQL_REDO": None, "CLIENT_ID": client,
            **self._container(container),
        }  # fmt: skip
        if commit:
            facts |= {"COMMIT_SCN": commit[0], "COMMIT_TIMESTAMP": commit[1]}
        if op in MARKS:
            return facts | {"SQL_REDO": MARKS[op] + self._delimiter} | ({"RS_ID": NO_RECORD} if partial else {})
        writer = self._writer(object_id, version)
        table = writer.table
        facts |= {
            "SEG_OWNER": writer.owner, "SEG_NAME": writer.name, "TABLE_NAME": writer.name, "SEG_TYPE": 2,
            "SEG_TYPE_NAME": "TABLE", "TABLE_SPACE": "USERS",
        }  # fmt: skip
        if op == redo.DDL:
            facts |= content | {"USERNAME": user}
            return facts
        logged = writer.logged or table
        organized = logged is not None and logged.organization == "INDEX"
        facts["DATA_OBJ#"] = logged.segment_id if logged else object_id
        if logged and organized:  # its rows lie in the index of its key, and have no ROWID
            facts["SEG_NAME"] = f"{writer.name},SYS_IOT_TOP_{object_id}"
        if logged and logged.organization == "PARTITIONED":
            facts["SEG_NAME"] = f"{writer.name},P1"
            if writer.name in self._database.dropped_partitions:
                writer, table = Writer(None, logged.segment_id, self._session.nls, self._options, logged=logged), None
                facts |= {"SEG_OWNER": None, "TABLE_NAME": None, "SEG_NAME": writer.name}
        kinds = {column.type.kind for column in (writer.logged or table).columns} if writer.logged or table else set()
        if kinds & UNLOGGED_KINDS:
            return None
        if kinds & UNSUPPORTED_KINDS:
            return facts | UNSUPPORTED if op in (redo.INSERT, redo.UPDATE, redo.DELETE) else None
        known = writer.logged or table
        data_id = known.data_id_at(scn) if known else object_id
        row_id = rowids.EMPTY if row is None or organized else rowids.to_text(rowids.make(data_id, row))
        facts["DATA_OBJD#"] = data_id
        if writer.stale or table is None:
            facts |= {"STATUS": MAY_NOT_RUN, "INFO": MISMATCH}
        shown = self._change(facts, writer, op, content, row_id, undo=bool(undo))
        return self._in_context(shown, serial, op, object_id, alone=isinstance(content, dict))

    def _in_context(
        self, facts: dict[str, Any] | None, serial: int, op: int, object_id: int, *, alone: bool
    ) -> dict[str, Any] | None:
        """A piece of a long value whose beginning is before the mined range has neither text nor table.

        :param alone: it is in the shape of 23ai, where the rows of LOBs are whole by themselves
        """
        if op in CONTEXT:
            self._in_range.add(serial)
        elif facts and op in PIECES and serial not in self._in_range and not (alone and op in LOB_PIECES):
            facts |= {"SEG_OWNER": UNKNOWN, "TABLE_NAME": f"OBJ# {object_id}", "SQL_REDO": None, "STATUS": MAY_NOT_RUN}
        return facts

    def _change(
        self, facts: dict[str, Any], writer: Writer, op: int, content: Any, row_id: str, *, undo: bool
    ) -> dict[str, Any] | None:
        facts["ROW_ID"] = row_id
        if op in (redo.INSERT, redo.UPDATE, redo.DELETE):
            return self._row_change(facts, writer, op, content, row_id, undo=undo)
        if op == redo.INTERNAL:
            return facts
        if isinstance(content, dict):
            return self._block(facts, writer, op, content, row_id)
        column_id, part, lead, *in_place = content
        facts |= {
            "ROW_ID": row_id if in_place and op == lobs.SELECT_LOCATOR else rowids.EMPTY,
            "RS_ID": rs_id(facts["SEQUENCE#"], self._place(lead)),
        }
        column = _column(writer, column_id)
        if op in (lobs.XML_BEGIN, lobs.XML_WRITE, lobs.XML_END):
            facts |= {"STATUS": MAY_NOT_RUN, "INFO": NOT_RUNNABLE}
        facts["SQL_REDO"] = self._long_text(writer, op, column, part)
        return facts

    def _block(
        self, facts: dict[str, Any], writer: Writer, op: int, content: dict[str, Any], row_id: str
    ) -> dict[str, Any]:
        """A piece of a long value as 23ai shows it: a LOB's locator has no text, its other rows are whole blocks."""
        column, part, values = _column(writer, content["column"]), content["part"], content["row"]
        real = "in_place" in content and op in (lobs.SELECT_LOCATOR, redo.LOB_WRITE)
        facts["ROW_ID"] = row_id if real else rowids.EMPTY
        if op == lobs.SELECT_LOCATOR:
            facts["OPERATION"] = "INTERNAL"
        elif op in (redo.LOB_WRITE, redo.LOB_TRIM, redo.LOB_ERASE):
            facts |= {"STATUS": MAY_NOT_RUN, "INFO": LOB_NOT_RUNNABLE}
            facts["SQL_REDO"] = writer.lob_block(column, values, self._long_text(writer, op, column, part))
        else:
            if op in (lobs.XML_BEGIN, lobs.XML_WRITE):
                facts |= {"STATUS": MAY_NOT_RUN, "INFO": NOT_RUNNABLE}
            part = values if op in (lobs.XML_BEGIN, lobs.STRING_BEGIN) else part
            text = self._long_text(writer, op, column, part)
            facts["SQL_REDO"] = (
                writer.xml_amount(part[1]) if op == lobs.XML_WRITE and not self._database.binary_xml else text
            )
        return facts

    def _block_change(
        self, facts: dict[str, Any], writer: Writer, op: int, content: Any, row_id: str, *, undo: bool
    ) -> dict[str, Any]:
        """An insert, update or delete as 23ai shows it."""
        before, after = content[0], content[1]
        columns = (writer.logged or writer.table).columns if writer.logged or writer.table else []
        if undo:
            if op == redo.DELETE:
                facts["SQL_REDO"] = writer.delete_by_row_id(row_id)
            elif before or after:
                known = {key: value for key, value in after.items() if _column(writer, key).type.kind != "XMLTYPE"}
                known = {key: lobs.in_row(_column(writer, key), value) for key, value in known.items()}
                facts["SQL_REDO"] = (
                    writer.insert(known) if op == redo.INSERT else writer.update({}, known, row_id, inline=True)
                )
            return facts
        if len(content) > 2:
            facts["SQL_REDO"] = writer.update(before, after, row_id, inline=True) if after else None
        elif op == redo.DELETE:
            facts["SQL_REDO"] = writer.delete(before, row_id)
        elif op == redo.INSERT:
            pieces, later = lobs.lobs_logged_apart(columns, {}, after)
            apart = {column.id for column in pieces + later}
            xml = {column.id for column in columns if column.type.kind == "XMLTYPE"}
            if apart or xml & after.keys():
                facts["ROW_ID"] = rowids.EMPTY
            emptied = {
                key: lobs.placeholder_value(_column(writer, key)) if key in apart else value
                for key, value in after.items()
            }
            facts["SQL_REDO"] = writer.insert({key: value for key, value in emptied.items() if key not in xml})
        else:
            if lobs.lobs_logged_apart(columns, before, after)[0]:
                facts["ROW_ID"] = rowids.EMPTY
            facts["SQL_REDO"] = writer.update(
                before, lobs.first_record_values(columns, before, after), row_id, inline=True
            )
        return facts

    def _row_change(
        self, facts: dict[str, Any], writer: Writer, op: int, content: Any, row_id: str, *, undo: bool
    ) -> dict[str, Any] | None:
        if self._session.engine.lob_shape != "19c":
            return self._unsupported(self._block_change(facts, writer, op, content, row_id, undo=undo), writer)
        before, after = content[0], content[1]
        inline = len(content) > 2
        if inline:
            facts["RS_ID"] = rs_id(facts["SEQUENCE#"], self._place(content[2]))
        long_ones = (
            [] if inline or undo else [key for key, value in after.items() if lobs.is_long(_column(writer, key), value)]
        )
        if long_ones:
            facts["ROW_ID"] = rowids.EMPTY
        if op == redo.UPDATE and not undo and len(long_ones) == len(after):
            return None  # only long values change: the records that follow say it all
        if undo and not before and not after:
            return facts  # written by the recovery after a crash, which does not know the values
        if op == redo.INSERT:
            facts["SQL_REDO"] = writer.insert(after)
        elif op == redo.DELETE:
            facts["SQL_REDO"] = writer.delete({} if undo else before, row_id)
        else:
            facts["SQL_REDO"] = writer.update({} if undo else before, after, row_id, inline=inline) if after else None
        return self._unsupported(facts, writer)

    def _unsupported(self, facts: dict[str, Any], writer: Writer) -> dict[str, Any]:
        if self._database.unsupported & {writer.name}:
            facts |= UNSUPPORTED
        return facts

    def _long_text(self, writer: Writer, op: int, column: Column, part: Any) -> str | None:
        if op == lobs.SELECT_LOCATOR:
            return writer.locator(column, part)
        if op == redo.LOB_WRITE:
            return writer.lob_write(column, *part)
        if op == redo.LOB_TRIM:
            return writer.lob_trim(column, part)
        if op == redo.LOB_ERASE:
            return writer.lob_erase(column, *part)
        if op == lobs.XML_BEGIN:
            return writer.xml_begin(column, part)
        if op == lobs.XML_WRITE:
            return writer.xml_write(part[1], binary=self._database.binary_xml)
        if op == lobs.STRING_BEGIN:
            return writer.string_begin(column, part)
        return writer.string_write(part[1]) if op == lobs.STRING_WRITE else None

    def _injected(self, record: tuple[Any, ...], content: dict[str, Any]) -> dict[str, Any]:
        _, scn, thread, sequence, at = record[:5]
        home = self._database.container_id(self._database.home)
        facts: dict[str, Any] = {
            "SCN": scn, "TIMESTAMP": at, "THREAD#": thread, "SEQUENCE#": sequence, "RS_ID": rs_id(sequence, record[19]), "SSN": 0,
            "ROLLBACK": 0, "STATUS": VALID, "ROW_ID": rowids.EMPTY, "CON_ID": 0, "CSF": 0, "SQL_REDO": None, **self._container(home),
        }  # fmt: skip
        facts |= content
        if "XID" in facts and "XIDSQN" not in facts:
            raw = facts["XID"]
            parts = (raw[:2], raw[2:4], raw[4:8])
            facts |= {
                key: int.from_bytes(part, "little")
                for key, part in zip(("XIDUSN", "XIDSLT", "XIDSQN"), parts, strict=True)
            }
        if "OPERATION_CODE" in facts:
            facts.setdefault("OPERATION", OPERATIONS.get(facts["OPERATION_CODE"], "UNSUPPORTED"))
        return facts

    def _container(self, number: int) -> dict[str, Any]:
        """The container of a record: of its transaction, START and COMMIT included. NULL where there are none."""
        if not self._database.cdb:
            return {}
        name = self._database.containers[number - 1]
        return {"SRC_CON_NAME": name, "SRC_CON_ID": number, "SRC_CON_UID": zlib.crc32(name.encode())}

    def _place(self, record: int) -> int:
        if record not in self._places:
            connection = self._session.miner.connection
            assert connection is not None
            self._places[record] = self._session.engine.redo.place_of(connection, record)
        return self._places[record]

    def _writer(self, object_id: int, version: int) -> Writer:
        key = object_id, version
        if key not in self._writers:
            logged = self._catalog.history.get(key)
            known = self._known(object_id, version)
            stale = known is not None and known.version != version
            self._writers[key] = Writer(known, object_id, self._session.nls, self._options, stale, logged)
        return self._writers[key]

    def _known(self, object_id: int, version: int) -> Table | None:
        if self._dictionary is None:
            return self._catalog.by_id(object_id)
        if self._dictionary < 0:
            return self._catalog.history.get((object_id, version))
        versions = [table for (number, _), table in self._catalog.history.items() if number == object_id]
        old = [table for table in versions if table.changed_scn <= (self._dictionary or 0)]
        return max(old, key=lambda table: table.version, default=None)


def _column(writer: Writer, column_id: int) -> Column:
    tables = [table for table in (writer.table, writer.logged) if table is not None]
    return next(column for table in tables for column in table.columns if column.id == column_id)
