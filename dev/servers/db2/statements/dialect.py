"""Db2's spelling of SQL → Derby's. The list is short and visible; what is in no rule goes to Derby as it is, and fails there if it does not know it."""

from __future__ import annotations

import re
from collections.abc import Callable

DATABASE = "TESTDB"
CATALOG = {
    "SYSCAT": {
        "TABLES": "TABLES", "COLUMNS": "COLUMNS", "TABCONST": "TABCONST", "KEYCOLUSE": "KEYCOLUSE", "INDEXES": "INDEXES",
        "INDEXCOLUSE": "INDEXCOLUSE", "SCHEMATA": "SCHEMATA", "TABAUTH": "TABAUTH", "DBAUTH": "DBAUTH",
        "DATATYPES": "DATATYPES", "SCHEMAAUTH": "SCHEMAAUTH", "ROLEAUTH": "ROLEAUTH",
        "REFERENCES": "FOREIGNKEYS",
    },
    "SYSIBM": {"SYSTABLES": "SYSTABLES", "SYSCOLUMNS": "SYSCOLUMNS"},
    "SYSIBMADM": {"ENV_INST_INFO": "ENV_INST_INFO", "ENV_SYS_INFO": "ENV_SYS_INFO", "DBCFG": "DBCFG"},
}  # fmt: skip
"""Views of the catalogue → the tables that the server keeps for them."""

_TOKENS = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
_HIDDEN = re.compile(r"\x01(\d+)\x01")
NAME = r"(?:\x01\d+\x01|(?:[^\W\d]|[#@$])[\w#@$]*)"
"""A name in a masked text: an ordinary one, or the mark of a delimited one."""


class MaskedStatement:
    """A statement whose literals, delimited names and comments are out of the way of regular expressions."""

    def __init__(self, sql: str) -> None:
        self._parts: list[str] = []
        self.text = _TOKENS.sub(self._hide, sql).strip().rstrip(";").rstrip()

    def _hide(self, match: re.Match[str]) -> str:
        token = match.group()
        if token.startswith(("--", "/*")):
            return " "
        self._parts.append(token)
        return f"\x01{len(self._parts) - 1}\x01"

    def shown(self, text: str) -> str:
        """A text with its literals and names back in their places."""
        return _HIDDEN.sub(lambda match: self._parts[int(match.group(1))], text)

    def name(self, text: str) -> str:
        """An identifier as the catalogue has it."""
        shown = self.shown(text)
        return shown[1:-1].replace('""', '"') if shown.startswith('"') else shown.upper()

    def literal(self, text: str) -> str:
        """The value of a character literal."""
        return self.shown(text).strip()[1:-1].replace("''", "'")


Replacement = str | Callable[[re.Match[str]], str]


def _catalog(match: re.Match[str]) -> str:
    schema, name = match.group(1).upper(), match.group(2).upper()
    known = CATALOG[schema].get(name)
    if known:
        return f"DB2CAT.{known}"
    # Derby has these tables itself, and nothing else there
    return match.group() if (schema, name) == ("SYSIBM", "SYSDUMMY1") else f"{schema}.{name}"


LONGEST_LOB = 16 << 20
"""The driver binds values to columns of longer ones in a way that the engine does not understand, and crashes."""


def _lob(match: re.Match[str]) -> str:
    """A large object of a length that the driver gets along with. Without a length it has 1 MB in Db2, and 2 GB in Derby."""
    return f"{match.group(1)}({min(LONGEST_LOB, length_of(match.group(2) or '1', match.group(3) if match.group(2) else 'M'))})"


def length_of(number: str, unit: str | None) -> int:
    """Compute the length that a number and its unit give, as in ``(5 M)``."""
    return int(number) << {"": 0, "K": 10, "M": 20, "G": 30}[(unit or "").upper()]


LONGEST_LSN = 16
_UPDATE, _WHERE = re.compile(r"UPDATE\b", re.IGNORECASE), re.compile(r"(\bWHERE\b)", re.IGNORECASE)
"""Separate the assignments of an UPDATE, which are no comparisons, from its condition."""
_LSNS = re.compile(
    r"((?:\w+\.)?(?:IBMSNAP_COMMITSEQ|IBMSNAP_INTENTSEQ|CD_OLD_SYNCHPOINT|CD_NEW_SYNCHPOINT|SYNCHPOINT|SIGNAL_LSN))\s*(<>|[<>]=?|=)\s*(\?|B?X\x01\d+\x01)",
    re.IGNORECASE,
)


def _pad_lsns(text: str, lsn_bytes: int) -> str:
    """Compare LSNs as Db2 does: with blanks behind the shorter of two strings, FOR BIT DATA or not. Derby does not.

    :param lsn_bytes: the length of LSNs in tables; the longest need no blanks, so that indexes find them
    """

    def pad_match(match: re.Match[str]) -> str:
        column, operator, value = match.groups()
        long = column if lsn_bytes == LONGEST_LSN else _long(column)
        return f"{long} {operator} {_long(value)}"

    head, where, conditions = (
        _WHERE.split(text, maxsplit=1) if _UPDATE.match(text) and _WHERE.search(text) else ("", "", text)
    )
    return head + where + _LSNS.sub(pad_match, conditions)


def _long(value: str) -> str:
    return f"CAST(CAST({value} AS CHAR({LONGEST_LSN}) FOR BIT DATA) AS VARCHAR({LONGEST_LSN}) FOR BIT DATA)"


RULES: list[tuple[re.Pattern[str], Replacement]] = [
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in [
        (r"\b(SYSCAT|SYSIBM|SYSIBMADM)\s*\.\s*(\w+)", _catalog),
        (r"\bCURRENT[ _]SERVER\b", f"CAST('{DATABASE}' AS VARCHAR(18))"),
        (r"\bCURRENT[ _]TIMEZONE\b", "CAST(0 AS DECIMAL(6, 0))"),
        (r"\bMIDNIGHT_SECONDS\s*\(\s*([\w.\x01]+)\s*\)", r"(HOUR(\1) * 3600 + MINUTE(\1) * 60 + SECOND(\1))"),
        (r"\bVARCHAR_FORMAT\s*\(\s*([\w.\x01]+)\s*,\s*\x01\d+\x01\s*\)", r"RTRIM(CHAR(\1))"),
        (r"\bCURRENT\s+(TIMESTAMP|DATE|TIME)\b(?:\s*\(\s*\d+\s*\))?", r"CURRENT_\1"),
        (r"\s+CONCAT\s+", " || "),
        (r"\b(TIMESTAMP|DATE|TIME)\s+(\x01\d+\x01)", r"\1(\2)"),
        (r"\bBX(\x01\d+\x01)", r"X\1"),
        (r"([\w.]+)\s*\+\s*(\?|\d+)\s+(SECOND|MINUTE|HOUR|DAY)S?\b", r"{fn TIMESTAMPADD(SQL_TSI_\3, \2, \1)}"),
        (r"([\w.]+)\s*-\s*(\d+)\s+(SECOND|MINUTE|HOUR|DAY)S?\b", r"{fn TIMESTAMPADD(SQL_TSI_\3, -\2, \1)}"),
        (r"\bLIMIT\s+(\d+|\?)", r"FETCH FIRST \1 ROWS ONLY"),
        (r"\bFOR\s+FETCH\s+ONLY\b", "FOR READ ONLY"),
        (r"\bOPTIMIZE\s+FOR\s+\d+\s+ROWS?\b", ""),
        (r"\bSKIP\s+LOCKED\s+DATA\b", r"SKIP LOCKED DATA"),
    ]
]
"""In every statement."""

CLAUSES: list[tuple[re.Pattern[str], Replacement]] = [
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in [
        (r"\bORGANIZE\s+BY\s+ROW\b", ""),
        (r"\bDATA\s+CAPTURE\s+(?:CHANGES(?:\s+INCLUDE\s+LONGVAR\s+COLUMNS)?|NONE)\b", ""),
        (r"\bNOT\s+VOLATILE\b|\bVOLATILE\b(?:\s+CARDINALITY)?", ""),
        (r"\bCOMPRESS\s+(?:YES|NO)(?:\s+(?:ADAPTIVE|STATIC))?", ""),
        (r"\bCCSID\s+(?:UNICODE|ASCII)\b", ""),
        (r"(\b[CB]LOB\b(?:\s*\([^)]*\))?)(?:\s+(?:NOT\s+)?(?:LOGGED|COMPACT))+", r"\1"),
        (r"\bINLINE\s+LENGTH\s+\d+", ""),
        (r"\bIMPLICITLY\s+HIDDEN\b", ""),
        (r"\b(?:PCTFREE|MINPCTUSED)\s+\d+", ""),
        (r"\b(?:ALLOW|DISALLOW)\s+REVERSE\s+SCANS\b", ""),
        (r"\b(?:INDEX|LONG)\s+IN\s+" + NAME, ""),
        (r"(?<=\))\s*IN\s+" + NAME + r"(?=\s|$)", ""),
        (r"\bTIMESTAMP\s*\(\s*\d+\s*\)", "TIMESTAMP"),
        (r"\bDECFLOAT\b(?:\s*\(\s*\d+\s*\))?", "VARCHAR(42)"),
        (r"\bVARGRAPHIC\b", "VARCHAR"),
        (r"\bGRAPHIC\b", "CHAR"),
        (r"\bDBCLOB\b", "CLOB"),
        (r"\bXML\b", "CLOB(16M)"),
        (r"\b([CB]LOB)\b(?:\s*\(\s*(\d+)\s*([KMG]?)\s*(?:OCTETS|CODEUNITS16|CODEUNITS32)?\s*\))?", _lob),
        (r"\bVARBINARY\s*\(\s*(\d+)\s*\)", r"VARCHAR(\1) FOR BIT DATA"),
        (r"\bBINARY\s*\(\s*(\d+)\s*\)", r"CHAR(\1) FOR BIT DATA"),
        (r"\(\s*(\d+)\s+(?:OCTETS|CODEUNITS16|CODEUNITS32)\s*\)", r"(\1)"),
        (r"\bWITH\s+DEFAULT\b", "DEFAULT"),
        (r"\bSET\s+NOT\s+NULL\b", "NOT NULL"),
        (r"\bDROP\s+NOT\s+NULL\b", "NULL"),
    ]
]
"""In statements that make or alter tables and indexes: clauses that change nothing that is seen here, and types that Derby has not."""

_RENAME_COLUMN = re.compile(
    rf"^ALTER\s+TABLE\s+((?:{NAME}\s*\.\s*)?{NAME})\s+RENAME\s+COLUMN\s+({NAME})\s+TO\s+({NAME})$", re.IGNORECASE
)
_REGISTERS = re.compile(r"\b(?:CURRENT[ _]USER|SESSION_USER|SYSTEM_USER)\b|(?<![\w.])USER(?![\w.])", re.IGNORECASE)


CATALOGS = re.compile(r"\b(?:SYSCAT|SYSIBM|SYSIBMADM)\s*\.\s*(?!SYSDUMMY1)", re.IGNORECASE)
_RESERVED = re.compile(r"\b(IDENTITY|DEFAULT|GENERATED|NULLS|VIRTUAL|DEFINER|VALUE(?!\s*\())\b", re.IGNORECASE)
"""Columns of the catalogue that are reserved words of Derby, and not of Db2."""


def translate_statement(sql: MaskedStatement, user: str, *, structure: bool, lsn_bytes: int = LONGEST_LSN) -> str:
    """The statement in Derby's words.

    :param user: who is logged on; Derby knows a name for each connection instead
    :param structure: it makes or alters something
    :param lsn_bytes: the length of LSNs
    """
    text = sql.text if structure else _pad_lsns(sql.text, lsn_bytes)
    if CATALOGS.search(text):
        text = _RESERVED.sub(lambda match: f'"{match.group().upper()}"', text)
    for pattern, replacement in RULES:
        text = pattern.sub(replacement, text)
    if structure:
        for pattern, replacement in CLAUSES:
            text = pattern.sub(replacement, text)
        text = _RENAME_COLUMN.sub(r"RENAME COLUMN \1.\2 TO \3", text)
    else:
        text = _REGISTERS.sub(f"CAST('{user}' AS VARCHAR(128))", text)
    return sql.shown(text)
