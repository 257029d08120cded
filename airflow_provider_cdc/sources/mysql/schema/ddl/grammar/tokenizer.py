"""SQL text → tokens, the way the lexers of MySQL and MariaDB cut it.

Ordinary comments vanish. The contents of executable comments (``/*!50100 … */``, ``/*M!100100 … */``) are tokens like
any other: a server replaces the ``!`` of those that it did not execute by a space before it writes the binlog, so
what still looks executable was executed. The exception is ``/*M!``, which means nothing to MySQL and stays:
:attr:`LexerModes.version` decides.

    >>> [t.value for t in tokenize_statement("DROP /*!40005 TEMPORARY */ TABLE `a``b` -- gone", 0, LexerModes())[0]]
    ['DROP', 'TEMPORARY', 'TABLE', 'a`b', '']
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from airflow_provider_cdc.sources.relational.sql_token_cursor import (
    BAD,
    BITS,
    END,
    HEX,
    OP,
    QUOTED,
    REST_OF_COMMENT,
    STRING,
    WORD,
    SqlToken,
)


@dataclass(frozen=True, slots=True)
class LexerModes:
    """The settings that decide how the same text is read: bits of ``sql_mode`` and the server's version.

    :param oracle: MariaDB's ``sql_mode=ORACLE``: ``DATE`` is a datetime there and ``BLOB`` a longblob
    :param maxdb: ``sql_mode=MAXDB``: ``TIMESTAMP`` is a datetime
    :param version: ``80036`` (MySQL) or ``101106`` (MariaDB, from 100000 on); ``None``: every executable comment counts
    """

    ansi_quotes: bool = False
    no_backslash_escapes: bool = False
    real_as_float: bool = False
    oracle: bool = False
    maxdb: bool = False
    version: int | None = None

    @property
    def is_mariadb(self) -> bool:
        """Check whether the server is known to be MariaDB."""
        return self.version is not None and self.version >= 100_000

    @property
    def is_mysql(self) -> bool:
        """Check whether the server is known to be MySQL."""
        return self.version is not None and self.version < 100_000

    def executes_comment(self, comment: re.Match[str]) -> bool:
        """Check whether the server runs the text that follows this opening of an executable comment."""
        if self.version is None:
            return True
        mariadb = self.is_mariadb
        number = int(comment["number"] or 0)
        if comment["flavour"]:
            return mariadb and number <= self.version
        # MariaDB leaves out text that is meant for MySQL 5.7 and later.
        return number <= self.version and not (mariadb and 50_700 <= number <= 99_999)


_OPEN = re.compile(r"/\*(?P<flavour>M?)!(?P<number>\d{5,6})?")
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_NAME = r"0-9A-Za-z_$\x80-\U0010ffff"
_NAME_AFTER_DOT = re.compile(rf"\.(?=[{_NAME}])([{_NAME}]+)")
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_QUOTES = frozenset("'\"`")


def _quoted(quote: str, *, backslash: bool) -> str:
    # Possessive repeats: an unterminated quote fails at once instead of trying every shorter reading.
    plain = rf"[^{quote}\\]++|\\." if backslash else f"[^{quote}]++"
    return f"{quote}(?:{plain}|{quote}{quote})*+{quote}"


@lru_cache(maxsize=4)
def _pattern(ansi_quotes: bool, no_backslash_escapes: bool) -> re.Pattern[str]:
    single = _quoted("'", backslash=not no_backslash_escapes)
    double = _quoted('"', backslash=not (no_backslash_escapes or ansi_quotes))
    quoted = _quoted("`", backslash=False) + (f"|{double}" if ansi_quotes else "")
    string = single + ("" if ansi_quotes else f"|{double}")
    return re.compile(
        rf"""
        (?P<skip>(?:[ \t\n\v\f\r]++
                   |\#[^\n]*+
                   |--(?=[\x00-\x20]|\Z)[^\n]*+
                   |/\*(?!M?!){REST_OF_COMMENT}\*/)+)
        |(?P<word>(?![xXbBnN]')[A-Za-z_$\x80-\U0010ffff][{_NAME}]*+)
        |(?P<quoted>{quoted})
        |(?P<string>{string})
        |(?P<hex>0x[0-9A-Fa-f]++(?![{_NAME}])|[xX]'[0-9A-Fa-f]*+')
        |(?P<bits>0b[01]++(?![{_NAME}])|[bB]'[01]*+')
        |(?P<number>(?:[0-9]++\.[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?
                   |[0-9]++[eE][+-]?[0-9]++(?![{_NAME}])
                   |[0-9]++(?![{_NAME}]))
        |(?P<digits>[0-9][{_NAME}]*+)
        |(?P<national>[nN](?='))
        |(?P<open>/\*M?!(?:\d{{5,6}})?)
        |(?P<op>.)
        """,
        re.VERBOSE | re.DOTALL,
    )


@lru_cache(maxsize=4)
def _statement_end(ansi_quotes: bool, no_backslash_escapes: bool) -> re.Pattern[str]:
    single = _quoted("'", backslash=not no_backslash_escapes)
    double = _quoted('"', backslash=not (no_backslash_escapes or ansi_quotes))
    # the last alternative is a quote that never ends: the text after it cannot be split
    comment = rf"\#[^\n]*+|--(?=[\x00-\x20]|\Z)[^\n]*+|/\*{REST_OF_COMMENT}(?:\*/|\Z)"
    return re.compile(rf"(?:[^;'\"`\#/-]++|{single}|{double}|`[^`]*+`|{comment}|[/-]|['\"`].*+)*+", re.DOTALL)


def statement_end(sql: str, pos: int, modes: LexerModes) -> int:
    """Return the end of the statement that starts at ``pos``.

    It is at a ``;`` outside quotes and comments, or the end of the text.

    Much faster than reading tokens: for statements whose first words say all that matters, and which can be megabytes
    long.

        >>> statement_end("SELECT ';' ; SELECT 2", 0, LexerModes())
        11
    """
    match = _statement_end(modes.ansi_quotes, modes.no_backslash_escapes).match(sql, pos)
    return match.end() if match else pos


def tokenize_statement(sql: str, pos: int, modes: LexerModes, limit: int | None = None) -> tuple[list[SqlToken], int]:
    """Return the tokens of one statement and the position after it (after its ``;``).

    The list ends with an ``end`` or a ``bad`` token. With ``limit`` reading may stop early, after about that many
    tokens; the position then means nothing.
    """
    match = _pattern(modes.ansi_quotes, modes.no_backslash_escapes).match
    tokens: list[SqlToken] = []
    add = tokens.append
    depth = 0  # of executable comments
    length = len(sql)
    while pos < length and (limit is None or len(tokens) < limit):
        token_match = match(sql, pos)
        if token_match is None:  # cannot be: the last alternative takes anything
            break
        kind, start, pos = token_match.lastgroup, pos, token_match.end()
        if kind == "skip":
            continue
        if kind == "op":
            char = sql[start]
            following = sql[pos : pos + 1]
            if char == ";":
                break
            if char == "*" and following == "/" and depth:
                depth, pos = depth - 1, pos + 1
            elif char in _QUOTES or (char == "/" and following == "*"):
                add(SqlToken(BAD, "", f"the token that starts with {char} has no end", start, length))
                return tokens, length
            else:
                add(SqlToken(OP, char, char, start, pos))
            continue
        if kind == "open":
            opening = _OPEN.match(sql, start)
            if opening and modes.executes_comment(opening):
                depth += 1
            else:
                pos = _after_comment(sql, pos)
            continue
        add(_token(kind or OP, sql, start, pos, modes))
        if kind in (WORD, QUOTED, "digits") and sql.startswith(".", pos):
            pos = _dotted(sql, pos, tokens)
    stopped = limit is not None and len(tokens) >= limit
    last = BAD if depth and not stopped else END
    add(SqlToken(last, "", "an executable comment has no end" if last == BAD else "", pos, pos))
    return tokens, pos


def _dotted(sql: str, pos: int, tokens: list[SqlToken]) -> int:
    """After ``name.`` everything is a name: keywords (``t.key``) and texts that look like a number (``db.1e5``), too."""
    while match := _NAME_AFTER_DOT.match(sql, pos):
        tokens.append(SqlToken(OP, ".", ".", pos, pos + 1))
        tokens.append(SqlToken(WORD, "", match[1], pos + 1, match.end()))
        pos = match.end()
    return pos


def _token(kind: str, sql: str, start: int, end: int, modes: LexerModes) -> SqlToken:
    text = sql[start:end]
    if kind == WORD:
        return SqlToken(WORD, text.upper(), text, start, end)
    if kind == QUOTED:
        quote = text[0]
        return SqlToken(QUOTED, "", text[1:-1].replace(quote * 2, quote), start, end)
    if kind == STRING:
        return SqlToken(STRING, "", _unquote(text, modes.no_backslash_escapes), start, end)
    if kind in (HEX, BITS):
        return SqlToken(kind, "", text[2:-1] if text[1] == "'" else text[2:], start, end)
    if kind == "digits":
        return SqlToken(WORD, text.upper(), text, start, end)
    if kind == "national":  # N'…' is _utf8mb3'…'
        return SqlToken(WORD, "_UTF8MB3", "_utf8mb3", start, end)
    return SqlToken(kind, "", text, start, end)


def _unquote(text: str, no_backslash_escapes: bool) -> str:
    quote, inner = text[0], text[1:-1]
    if "\\" not in inner or no_backslash_escapes:
        return inner.replace(quote * 2, quote)
    # A doubled quote may follow an escaped one, so both have to be undone in one pass.
    pieces = re.split(r"(\\.)", inner, flags=re.DOTALL)
    return "".join(
        _ESCAPED.get(p[1], p[1]) if len(p) == 2 and p[0] == "\\" else p.replace(quote * 2, quote) for p in pieces
    )


def _after_comment(sql: str, pos: int) -> int:
    """Position after the comment whose inside starts at ``pos``; comments nest one level in there."""
    depth = 1
    while depth and (edge := _COMMENT_EDGE.search(sql, pos)):
        depth += 1 if edge[0] == "/*" else -1
        pos = edge.end()
    return len(sql) if depth else pos
