"""Reads column, constraint and log group definitions of CREATE TABLE and ALTER TABLE."""

from dev.servers.oracle.engine.catalog import Column, Key, Sequence, Table
from dev.servers.oracle.errors import OraError, unknown
from dev.servers.oracle.session_protocol import Session
from dev.servers.oracle.sql.lexer import Token, Tokens
from dev.servers.oracle.values import datatypes
from dev.servers.oracle.values.datatypes import DataType

AFTER_TYPE = (
    "DEFAULT",
    "GENERATED",
    "CONSTRAINT",
    "NOT",
    "NULL",
    "PRIMARY",
    "UNIQUE",
    "CHECK",
    "REFERENCES",
    "ENABLE",
    "DISABLE",
    "VISIBLE",
)
CONSTRAINT_WORDS = ("CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN", "SUPPLEMENTAL")
LOG_TYPES = {
    "ALL": "ALL COLUMN LOGGING", "PRIMARY KEY": "PRIMARY KEY LOGGING", "UNIQUE": "UNIQUE KEY LOGGING",
    "FOREIGN KEY": "FOREIGN KEY LOGGING",
}  # fmt: skip


class Definition:
    """Reads column and constraint definitions into a table."""

    def __init__(self, session: Session, table: Table, sql: str) -> None:
        self.session = session
        self.table = table
        self.sql = sql

    def element(self, tokens: list[Token]) -> None:
        """Read an entry of CREATE TABLE or of ADD: a column or a constraint."""
        if tokens[0].word in CONSTRAINT_WORDS and not (len(tokens) > 1 and tokens[0].kind == "quoted"):
            self.constraint(Tokens(tokens, self.sql))
        else:
            self.column(Tokens(tokens, self.sql))

    def column(self, reader: Tokens) -> Column:
        name = reader.name()
        if self.table.has(name):
            raise OraError(1430 if self.table.created_scn else 957)
        kind = read_type(reader)
        if kind is None:
            raise unknown(self.sql, f"the type of {name}")
        column = Column(self.table.next_column, name, kind)
        self.table.next_column += 1
        self.table.columns.append(column)
        self.attributes(column, reader)
        return column

    def attributes(self, column: Column, reader: Tokens) -> None:
        """Read the attributes that may stand behind the type of a column."""
        name = f"SYS_C{self.table.id}{len(self.table.keys):02d}"
        while reader.more:
            if reader.skip_words("CONSTRAINT"):
                name = reader.name()
            elif reader.skip_words("DEFAULT"):
                reader.skip_words("ON", "NULL")
                column.default = reader.text(reader.until(*AFTER_TYPE)).strip()
                if column.default.upper() == "":
                    reader.expect("NULL")
                    column.default = None
            elif reader.skip_words("GENERATED"):
                self._identity(column, reader)
            elif reader.skip_words("NOT", "NULL"):
                column.nullable = False
            elif reader.skip_words("NULL"):
                column.nullable = True
            elif reader.skip_words("PRIMARY", "KEY"):
                self.key(Key(name, "P", [column.name]))
            elif reader.skip_words("UNIQUE"):
                self.key(Key(name, "U", [column.name]))
            elif reader.skip_words("CHECK"):
                self.table.checks.append((name, reader.text(reader.group())))
            elif reader.skip_words("REFERENCES"):
                reader.until("NOT", "NULL", "PRIMARY", "UNIQUE", "ENABLE", "CHECK")
            elif not (
                reader.skip_words("ENABLE")
                or reader.skip_words("VISIBLE")
                or reader.skip_words("VALIDATE")
                or reader.skip_words("NOVALIDATE")
            ):
                raise unknown(self.sql, f"column {column.name}")

    def _identity(self, column: Column, reader: Tokens) -> None:
        words = [token.text for token in reader.until("AS")]
        reader.expect("AS", "IDENTITY")
        if reader.word() == "(":
            reader.group()
        column.generated, column.nullable = " ".join(words), False
        self.session.engine.catalog.save(
            Sequence(self.table.owner, f"ISEQ$$_{self.table.id}", self.table.container, 0, 1)
        )

    def constraint(self, reader: Tokens) -> None:
        name = f"SYS_C{self.table.id}{len(self.table.keys):02d}"
        if reader.skip_words("CONSTRAINT"):
            name = reader.name()
        if reader.skip_words("SUPPLEMENTAL", "LOG"):
            add_log_group(self.table, reader)
            return
        if reader.skip_words("CHECK"):
            self.table.checks.append((name, reader.text(reader.group())))
        elif reader.skip_words("FOREIGN", "KEY"):
            reader.group()
            reader.expect("REFERENCES")
        else:
            kind = "P" if reader.skip_words("PRIMARY", "KEY") else "U"
            if kind == "U":
                reader.expect("UNIQUE")
            columns = [token.text for token in reader.group() if token.is_identifier]
            deferred = reader.skip_words("DEFERRABLE", "INITIALLY", "DEFERRED")
            self.key(Key(name, kind, columns, deferred=bool(deferred)))

    def key(self, key: Key) -> None:
        if key.kind == "P":
            if self.table.primary_key:
                raise OraError(2260)
            for name in key.columns:
                self.table.column(name).nullable = False
        self.table.keys.append(key)


def read_type(reader: Tokens) -> DataType | None:
    """The data type at this place; None, and nothing moved over, when there is none."""
    start = reader.at
    words = []
    while reader.more and reader.word() not in AFTER_TYPE:
        token = reader.next()
        words.append(token.text)
        if token.text == "(":
            reader.at -= 1
            words[-1] = "(" + " ".join(one.text for one in reader.group()).replace("- ", "-") + ")"
    kind = datatypes.parse(" ".join(words).replace(" . ", ".").replace(" (", "(")) if words else None
    if kind is None:
        reader.at = start
    elif kind.length is not None and (kind.length < 1 or kind.length > datatypes.LONGEST_STRING):
        raise OraError(900, "ORA-00910: specified length too long for its datatype")
    return kind


def add_log_group(table: Table, reader: Tokens) -> None:
    """Supplemental logging behind SUPPLEMENTAL LOG."""
    if reader.skip_words("GROUP"):
        name = reader.name()
        columns = [token.text for token in reader.group() if token.is_identifier]
        reader.skip_words("ALWAYS")
        table.log_groups.append((name, "USER LOG GROUP", columns))
        return
    reader.expect("DATA")
    kind = LOG_TYPES.get(" ".join(token.text for token in reader.group()))
    reader.expect("COLUMNS")
    if kind is None:
        raise unknown(reader.sql)
    if not table.logs(kind):
        table.log_groups.append((f"SYS_C{table.id}{len(table.log_groups):03d}", kind, []))
