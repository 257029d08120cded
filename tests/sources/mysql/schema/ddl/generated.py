"""Random CREATE TABLE and ALTER TABLE statements, most of which a server accepts."""

from __future__ import annotations

import random

from airflow_provider_cdc.sources.mysql.schema.ddl import parse_type
from tests.sources.mysql.schema.ddl.applied import PRIMARY, Table

PREFIXED = "p1"
"""Name of the keys that are over a prefix of a column."""

NAMES = [
    "id",
    "Name",
    "größe",
    "`sp ace`",
    "`back``tick`",
    "`1`",
    "1st",
    "`key`",
    "comment",
    "status",
    "`a.b`",
    "`日本`",
    "_x",
    "$y",
]
TYPES = [
    "INT", "INTEGER UNSIGNED", "INT(5) ZEROFILL", "TINYINT", "BOOL", "MIDDLEINT", "INT8 UNSIGNED", "BIT", "BIT(9)",
    "DEC", "DEC(7)", "NUMERIC(12,4)", "FIXED(5,5) UNSIGNED", "FLOAT", "FLOAT(30)", "FLOAT(7,3)", "DOUBLE PRECISION",
    "REAL", "FLOAT8", "CHAR", "CHAR(7)", "VARCHAR(20)", "CHARACTER VARYING(9)", "NCHAR(3)", "NATIONAL VARCHAR(4)",
    "VARCHAR(30) CHARACTER SET latin1", "VARCHAR(10) COLLATE latin1_bin", "CHAR(5) CHARSET ascii BINARY",
    "VARCHAR(5) BINARY", "CHAR(4) ASCII", "CHAR(4) UNICODE", "CHAR(3) BYTE", "VARCHAR(9) CHARSET binary",
    "TEXT(50) BYTE", "TINYTEXT", "TEXT", "TEXT(50)", "TEXT(300)", "TEXT(20000) CHARSET utf8mb4", "LONG",
    "LONG VARBINARY", "MEDIUMTEXT", "LONGTEXT", "BINARY", "BINARY(5)", "VARBINARY(60)", "BLOB", "BLOB(70000)",
    "TINYBLOB", "DATE", "TIME", "TIME(3)", "DATETIME(6)", "TIMESTAMP(2) NULL", "YEAR", "ENUM('a','B ','it''s','c,d')",
    "SET('x','y','z')", "ENUM('ä','ö') CHARACTER SET latin1", "JSON", "GEOMETRY", "POINT", "GEOMETRYCOLLECTION",
    "MULTIPOLYGON",
]  # fmt: skip
TYPES_TO_CHANGE = [
    t for t in TYPES if "ä" not in t and t not in ("GEOMETRY", "POINT", "GEOMETRYCOLLECTION", "MULTIPOLYGON")
]
"""Without two riddles of the servers: MariaDB makes a key over a spatial column one over its first 32 bytes, and
CONVERT
TO makes question marks of the members of an ENUM that are not ASCII."""

DEFAULTS = {
    "int": ["0", "'17'", "+5", "1.5", "0x41", "b'11'", "(3)", "TRUE"],
    "decimal": ["1.25", "'-2.5'", ".5"],
    "float": ["1.5", "'2'"],
    "char": ["'a'", "''", "5", "0x6162", "'it''s'", '"q"', "N'x'", "'x' 'y'"],
    "temporal": ["'2021-03-04'", "'2021-03-04 05:06:07'"],
    "enum": ["'a'", "'b'", "'IT''S'"],
    "set": ["'z,x'", "''", "'Y'"],
    "bit": ["b'1'", "0", "1", "x'01'"],
}
FAMILIES = {
    "tinyint": "int", "int": "int", "bigint": "int", "mediumint": "int", "decimal": "decimal", "float": "float",
    "double": "float", "char": "char", "varchar": "char", "datetime": "temporal", "date": "temporal", "enum": "enum",
    "set": "set", "bit": "bit",
}  # fmt: skip


class Statements:
    """Random statements about a table; most make sense."""

    def __init__(self, seed: int, *, mariadb: bool):
        self.random = random.Random(seed)
        self.mariadb = mariadb

    def name(self) -> str:
        return self.random.choice(NAMES)

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def existing(self, table: Table) -> str:
        return "`" + self.random.choice(table.columns).name.replace("`", "``") + "`"

    def definition(self) -> str:
        """A type and what may follow it."""
        pick = self.random.choice
        text = pick(TYPES_TO_CHANGE)
        parts = [text]
        type_ = parse_type(text).type
        expressions = ["(1 + 1)"] if self.random.random() < 0.3 else []
        if self.random.random() < 0.4 and (choices := DEFAULTS.get(FAMILIES.get(type_, ""), []) + expressions):
            parts.append(f"DEFAULT {pick(choices)}")
        elif self.random.random() < 0.1 and type_ == "datetime":
            parts.append("DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6)")
        elif self.random.random() < 0.1 and type_ == "int" and "ZEROFILL" not in text:
            parts.append(f"GENERATED ALWAYS AS (1 + 2) {pick(['VIRTUAL', 'STORED', ''])}")
        if self.random.random() < 0.3 and "NULL" not in text and "GENERATED" not in parts[-1]:
            parts.append(pick(["NOT NULL", "NULL"]))
        if self.random.random() < 0.1:
            parts.append(pick(["UNIQUE", "UNIQUE KEY", "INVISIBLE"]))
        if self.random.random() < 0.3:
            parts.append(pick(["COMMENT 'it''s, )'", "/* no, comment */", "CHECK (1 IN (1, 2))", "-- none\n"]))
        return " ".join(parts)

    def place(self, table: Table) -> str:
        return self.random.choice(["", "", "", "FIRST", f"AFTER {self.existing(table)}"])

    def create(self, name: str) -> str:
        names = self.random.sample(NAMES, self.random.randint(2, 7))
        elements = [f"{n} {self.definition()}" for n in names]
        if self.random.random() < 0.5:
            elements[0] = (
                f"{names[0]} {self.random.choice(['INT AUTO_INCREMENT PRIMARY KEY', 'SERIAL', 'BIGINT NOT NULL KEY'])}"
            )
        elif self.random.random() < 0.6:
            elements.append(f"PRIMARY KEY ({', '.join(self.random.sample(names, 2))})")
        if self.random.random() < 0.4:
            elements.append(f"UNIQUE KEY {self.random.choice(['', 'u1'])} ({self.random.choice(names)})")
        if self.random.random() < 0.3:
            elements.append(f"INDEX i1 ({self.random.choice(names)}), CONSTRAINT c1 CHECK (2 > 1)")
        charset = self.random.choice(
            ["", "CHARSET=latin1", "DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "CHARSET binary"]
        )
        return f"CREATE TABLE {name} (\n  {', '.join(elements)}\n) ENGINE=InnoDB {charset}"

    def action(self, table: Table) -> str:
        keys = [k for k in table.keys if k != PRIMARY]
        columns = [
            f"ADD COLUMN {self.name()} {self.definition()} {self.place(table)}",
            f"ADD {self.name()} {self.definition()} {self.place(table)}",
            f"ADD ({self.name()} {self.definition()}, {self.name()} {self.definition()})",
            f"DROP COLUMN {self.existing(table)}",
            f"DROP {self.existing(table)}",
            f"CHANGE {self.existing(table)} {self.name()} {self.definition()} {self.place(table)}",
            f"CHANGE COLUMN {self.existing(table)} {self.existing(table)} {self.definition()} {self.place(table)}",
            f"MODIFY {self.existing(table)} {self.definition()} {self.place(table)}",
            f"RENAME COLUMN {self.existing(table)} TO {self.name()}",
            f"ALTER {self.existing(table)} SET DEFAULT {self.random.choice(['5', 'NULL', '(4)', '0x41'])}",
            f"ALTER COLUMN {self.existing(table)} DROP DEFAULT",
        ]
        if self.mariadb:
            columns += [
                f"ADD COLUMN IF NOT EXISTS {self.existing(table)} INT FIRST",
                f"ADD COLUMN IF NOT EXISTS {self.name()} INT",
                f"DROP COLUMN IF EXISTS {self.name()}",
                f"MODIFY IF EXISTS {self.name()} INT FIRST",
            ]
        others = [
            f"ADD PRIMARY KEY ({self.existing(table)})",
            "DROP PRIMARY KEY",
            f"ADD UNIQUE ({self.existing(table)})",
            f"ADD CONSTRAINT {self.pick('x1', '')} UNIQUE INDEX {self.pick('', 'u2')} ({self.existing(table)})",
            f"ADD UNIQUE KEY {PREFIXED} ({self.existing(table)}(2))",
            f"ADD INDEX ({self.existing(table)})",
            f"DROP INDEX `{self.random.choice([*keys, 'none']).replace('`', '``')}`",
            f"RENAME INDEX `{self.random.choice([*keys, 'none']).replace('`', '``')}` TO r1",
            "CONVERT TO CHARACTER SET utf8mb4",
            "CONVERT TO CHARSET latin1 COLLATE latin1_bin",
            "DEFAULT CHARACTER SET utf8mb4",
            "COLLATE = latin1_german1_ci",
            "ENGINE=InnoDB ROW_FORMAT=DYNAMIC",
            "COMMENT 'x, y'",
            "FORCE",
            "ALGORITHM=COPY",
        ]
        return self.random.choice(columns if self.random.random() < 0.7 else others)

    def alter(self, name: str, table: Table) -> str:
        if self.random.random() < 0.1:
            column = self.existing(table)
            return f"CREATE UNIQUE INDEX u{self.random.randint(3, 9)} ON {name} ({column}) COMMENT 'x'"
        actions = [self.action(table) for _ in range(self.random.choice([1, 1, 2, 3]))]
        if sum("CHAR" in a or "COLLATE" in a for a in actions if a.startswith(("CONV", "DEF", "COLL"))) > 1:
            actions = actions[:1]  # the reader does not decide between two character sets
        order = f", ORDER BY {self.existing(table)}" if self.random.random() < 0.05 else ""
        return f"ALTER TABLE {name} " + ", ".join(actions) + order
