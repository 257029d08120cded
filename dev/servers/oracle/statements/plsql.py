"""Anonymous blocks: a menu of calls and statements one after the other, with loops over numbers; no other PL/SQL."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dev.servers.oracle.engine import lobs
from dev.servers.oracle.engine.transactions import ROW_EXCLUSIVE
from dev.servers.oracle.errors import OraError, unknown
from dev.servers.oracle.logminer.mining_session import CONSTANTS
from dev.servers.oracle.session_protocol import Session
from dev.servers.oracle.sql.expressions import quote
from dev.servers.oracle.sql.inference import Scope
from dev.servers.oracle.sql.lexer import BIND, NUMBER, Token, Tokens, split
from dev.servers.oracle.sql.statements import Statement
from dev.servers.oracle.values import rowids

WITHOUT_EFFECT = frozenset(
    {"DBMS_METADATA.SET_TRANSFORM_PARAM", "DBMS_STATS.GATHER_TABLE_STATS", "DBMS_OUTPUT.PUT_LINE", "DBMS_OUTPUT.ENABLE"}
    | {"DBMS_APPLICATION_INFO.SET_MODULE", "DBMS_LOB.OPEN", "DBMS_LOB.CLOSE"}
)
DML_WORDS = ("INSERT", "UPDATE", "DELETE", "COMMIT", "ROLLBACK", "SAVEPOINT", "LOCK", "SET")


@dataclass
class LobVariable:
    """A locator that a block has selected: changes go to the row at the end of the block's statement."""

    table: Any
    row: int
    column: Any
    steps: list[tuple[str, int, Any]] = field(default_factory=list)


class Block:
    """The run of a block."""

    def __init__(self, session: Session, sql: str, binds: dict[str, Any]) -> None:
        self.session = session
        self.sql = sql
        self.binds = binds
        self.outs: dict[str, Any] = {}
        self.variables: dict[str, Any] = {}

    def run(self, reader: Tokens) -> None:
        if reader.skip_words("CALL"):
            self._statement(reader.until(";"))
            return
        if reader.skip_words("DECLARE"):
            self._declare(reader)
        reader.expect("BEGIN")
        self._statements(reader, "END")
        reader.end()

    def _declare(self, reader: Tokens) -> None:
        while reader.word() != "BEGIN":
            name = reader.name()
            definition = reader.until(";")
            reader.expect(";")
            parts = split(definition, ":=")
            self.variables[name] = self.value(parts[1]) if len(parts) > 1 else None

    def _statements(self, reader: Tokens, last: str) -> None:
        while not reader.skip_words(last):
            if reader.skip_words("FOR"):
                self._loop(reader)
                continue
            self._statement(reader.until(";"))
            reader.expect(";")
        self._write_lobs()

    def _loop(self, reader: Tokens) -> None:
        name = reader.name()
        reader.expect("IN")
        low, high = reader.until(".."), []
        reader.expect("..")
        high = reader.until("LOOP")
        reader.expect("LOOP")
        body = reader.at
        after = _after_loop(reader)
        for number in range(int(self.value(low)), int(self.value(high)) + 1):
            self.variables[name] = number
            reader.at = body
            self._statements(reader, "END")
        reader.at = after
        reader.expect("LOOP", ";")

    # statements

    def _statement(self, tokens: Sequence[Token]) -> None:
        reader = Tokens(tokens, self.sql)
        word = reader.word()
        if word == "NULL" and len(tokens) == 1:
            return
        if tokens and tokens[0].kind == BIND and tokens[1].text == ":=":
            self.outs[tokens[0].text] = self.binds[tokens[0].text] = self.value(tokens[2:])
        elif reader.word(1) == ":=":
            self.variables[tokens[0].text] = self.value(tokens[2:])
        elif reader.skip_words("EXECUTE", "IMMEDIATE"):
            self.session.run(
                str(self.value(reader.until("USING"))), [[self.value(part) for part in self._using(reader)]]
            )
        elif word == "SELECT":
            self._select_into(tokens)
        elif word in DML_WORDS:
            self._run_sql(tokens)
        else:
            self._call(reader)

    def _using(self, reader: Tokens) -> list[list[Token]]:
        return split(reader.until()) if reader.skip_words("USING") else []

    def _run_sql(self, tokens: Sequence[Token]) -> None:
        self._write_lobs()
        text, binds = self._text(tokens)
        self.session.run(text, [binds])

    def _text(self, tokens: Sequence[Token]) -> tuple[str, list[Any]]:
        """A statement's text with the variables of the block in place, and its binds."""
        parts = []
        for index, token in enumerate(tokens):
            qualified = index and tokens[index - 1].text == "."
            if token.word in self.variables and not qualified:
                parts.append(self._literal(self.variables[token.word]))
            else:
                parts.append(token.raw)
        return " ".join(parts), [self.binds[token.text] for token in tokens if token.kind == BIND]

    def _literal(self, value: Any) -> str:
        if isinstance(value, LobVariable):
            raise unknown(self.sql, "a LOB variable in a statement")
        if isinstance(value, bytes):
            return f"HEXTORAW('{value.hex()}')"
        return "NULL" if value is None else quote(value) if isinstance(value, str) else repr(value)

    def value(self, tokens: Sequence[Token]) -> Any:
        """The value of an expression."""
        if len(tokens) == 1 and isinstance(self.variables.get(tokens[0].word), LobVariable):
            return self.variables[tokens[0].word]
        text, binds = self._text(_with_constants(tokens))
        statement = self.session.statement(text)
        translated = self.session.compile(statement).expressions.translate(statement.tokens, Scope())
        return self.session.evaluate(f"SELECT {translated}", binds)[0][0]

    # calls

    def _call(self, reader: Tokens) -> None:
        path = reader.names()
        name = ".".join(path[1:] if path[0] == "SYS" else path)
        given: dict[str, Any] = {}
        positional: list[Any] = []
        if reader.word() == "(":
            for part in split(reader.group()):
                if len(part) > 2 and part[1].text == "=>":
                    given[part[0].text] = self.value(part[2:])
                elif name.startswith("DBMS_METADATA"):
                    continue  # its first argument is a constant of the package
                else:
                    positional.append(self.value(part))
        reader.end()
        if name in WITHOUT_EFFECT:
            return
        procedure = self._procedures().get(name)
        if procedure is None:
            raise unknown(self.sql, name)
        procedure(positional, given)

    def _procedures(self) -> dict[str, Callable[[list[Any], dict[str, Any]], None]]:
        return {
            "DBMS_LOGMNR.ADD_LOGFILE": self._add_logfile, "DBMS_LOGMNR.REMOVE_LOGFILE": self._remove_logfile,
            "DBMS_LOGMNR.START_LOGMNR": self._start, "DBMS_LOGMNR.END_LOGMNR": self._end, "DBMS_LOGMNR_D.BUILD": self._build,
            "DBMS_LOB.WRITE": self._lob_write, "DBMS_LOB.WRITEAPPEND": self._lob_append, "DBMS_LOB.APPEND": self._lob_append,
            "DBMS_LOB.TRIM": self._lob_trim, "DBMS_LOB.ERASE": self._lob_erase, "DBMS_LOCK.SLEEP": _sleep, "DBMS_SESSION.SLEEP": _sleep,
            "DBMS_SESSION.SET_IDENTIFIER": self._identify,
        }  # fmt: skip

    def _identify(self, positional: list[Any], given: dict[str, Any]) -> None:
        """The client id of the transactions that begin from now on."""
        self.session.client_id = _arguments(("CLIENT_ID",), positional, given)["CLIENT_ID"]

    def _add_logfile(self, positional: list[Any], given: dict[str, Any]) -> None:
        self.session.privileges.need_package("DBMS_LOGMNR")
        values = _arguments(("LOGFILENAME", "OPTIONS"), positional, given)
        self.session.miner.add_logfile(str(values["LOGFILENAME"]), int(values["OPTIONS"] or CONSTANTS["ADDFILE"]))

    def _remove_logfile(self, positional: list[Any], given: dict[str, Any]) -> None:
        self.session.privileges.need_package("DBMS_LOGMNR")
        self.session.miner.remove_logfile(str(_arguments(("LOGFILENAME",), positional, given)["LOGFILENAME"]))

    def _start(self, positional: list[Any], given: dict[str, Any]) -> None:
        self.session.privileges.need_package("DBMS_LOGMNR")
        names = ("STARTSCN", "ENDSCN", "STARTTIME", "ENDTIME", "DICTFILENAME", "OPTIONS")
        values = _arguments(names, positional, given)
        if values["STARTTIME"] or values["ENDTIME"]:
            raise unknown(self.sql, "START_LOGMNR with times")
        self.session.miner.start(
            int(values["STARTSCN"] or 0),
            int(values["ENDSCN"] or 0),
            int(values["OPTIONS"] or 0),
            values["DICTFILENAME"],
        )

    def _end(self, positional: list[Any], given: dict[str, Any]) -> None:
        self.session.privileges.need_package("DBMS_LOGMNR")
        self.session.miner.end()

    def _build(self, positional: list[Any], given: dict[str, Any]) -> None:
        self.session.privileges.need_package("DBMS_LOGMNR_D")
        self.session.need_writable()
        self.session.miner.need_root()
        names = ("DICTIONARY_FILENAME", "DICTIONARY_LOCATION", "OPTIONS")
        values = _arguments(names, positional, given)
        if values["DICTIONARY_FILENAME"]:
            path = f"{values['DICTIONARY_LOCATION']}/{values['DICTIONARY_FILENAME']}"
            self.session.database.dictionary_files[path] = self.session.engine.snapshot_scn()
            return
        self.session.database.build_dictionary()

    # LOBs

    def _select_into(self, tokens: Sequence[Token]) -> None:
        reader = Tokens(tokens, self.sql)
        reader.expect("SELECT")
        column = reader.name()
        reader.expect("INTO")
        target = reader.name()
        rest = list(tokens[reader.at :])
        text, binds = self._text([*rest])
        if rest[-1].word != "UPDATE" or target not in self.variables:
            raise unknown(self.sql, "SELECT INTO other than of a LOB FOR UPDATE")
        source = Tokens(rest, self.sql)
        source.expect("FROM")
        table = self.session.names.table(source.names(), "UPDATE")
        found = self.session.run(f"SELECT ROWID {text}", [binds])
        rows = list(found.rows or [])
        if len(rows) != 1:
            raise OraError(900, "SELECT INTO found no row or several (ORA-01403, ORA-01422)")
        row = rowids.number(rows[0][0])
        self.variables[target] = LobVariable(table, row, table.column(column))

    def _lob(self, value: Any) -> LobVariable:
        if not isinstance(value, LobVariable):
            raise OraError(22275)
        return value

    def _lob_write(self, positional: list[Any], given: dict[str, Any]) -> None:
        locator, size, offset, data = positional
        self._lob(locator).steps.append(("write", int(offset), data[: int(size)]))

    def _lob_append(self, positional: list[Any], given: dict[str, Any]) -> None:
        self._lob(positional[0]).steps.append(("append", 0, positional[-1]))

    def _lob_trim(self, positional: list[Any], given: dict[str, Any]) -> None:
        self._lob(positional[0]).steps.append(("trim", int(positional[1]), None))

    def _lob_erase(self, positional: list[Any], given: dict[str, Any]) -> None:
        offset = int(positional[2]) if len(positional) > 2 else 1
        self._lob(positional[0]).steps.append(("erase", offset, int(positional[1])))

    def _write_lobs(self) -> None:
        for variable in self.variables.values():
            if isinstance(variable, LobVariable) and variable.steps:
                self._write(variable)

    def _write(self, variable: LobVariable) -> None:
        transaction = self.session.transaction()
        with self.session.engine.writing():
            self.session.engine.lock_table(transaction, variable.table, ROW_EXCLUSIVE)
            lobs.change(self.session.engine, transaction, variable.table, variable.row, variable.column, variable.steps)
        variable.steps = []


def execute(session: Session, statement: Statement, binds: list[Any]) -> dict[int, Any]:
    """Run a block; returns the values of the binds it has set, by their numbers."""
    names = list(dict.fromkeys(token.text for token in statement.tokens if token.kind == BIND))
    block = Block(session, statement.sql, dict(zip(names, binds, strict=True)))
    block.run(statement.reader())
    return {names.index(name): value for name, value in block.outs.items()}


def _arguments(names: tuple[str, ...], positional: list[Any], given: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = dict.fromkeys(names)
    values |= dict(zip(names, positional, strict=False))
    wrong = set(given) - set(names)
    if wrong or len(positional) > len(names):
        raise OraError(900, f"PLS-00306: wrong number or types of arguments: {', '.join(sorted(wrong))}")
    return values | given


def _with_constants(tokens: Sequence[Token]) -> list[Token]:
    """DBMS_LOGMNR.ADDFILE and the like as numbers, TRUE and FALSE as 1 and 0."""
    result: list[Token] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if (
            token.word in ("DBMS_LOGMNR", "DBMS_LOGMNR_D")
            and index + 2 < len(tokens)
            and tokens[index + 2].text in CONSTANTS
        ):
            if result and result[-1].text == "." and result[-2].word == "SYS":
                del result[-2:]
            number = str(CONSTANTS[tokens[index + 2].text])
            result.append(Token(NUMBER, number, token.start, token.end, number))
            index += 3
            continue
        if token.word in ("TRUE", "FALSE"):
            number = str(int(token.word == "TRUE"))
            token = Token(NUMBER, number, token.start, token.end, number)
        result.append(token)
        index += 1
    return result


def _after_loop(reader: Tokens) -> int:
    """The place behind the END of the loop that begins here."""
    depth = 1
    for at in range(reader.at, len(reader.tokens)):
        token, following = reader.tokens[at], reader.tokens[at + 1 : at + 2]
        if token.word == "LOOP" and reader.tokens[at - 1].word != "END":
            depth += 1
        if token.word == "END" and following and following[0].word == "LOOP":
            depth -= 1
            if depth == 0:
                return at + 1
    raise unknown(reader.sql, "LOOP without END LOOP")


def _sleep(positional: list[Any], given: dict[str, Any]) -> None:
    time.sleep(float(positional[0] if positional else next(iter(given.values()))))
