"""SQL text → tokens, the way Oracle cuts it.

Comments vanish, hints too: no hint changes what a DDL statement does.

    >>> [t.value for t in tokenize("DROP /*+ x */ TABLE shop.\\"Orders\\" -- gone")]
    ['DROP', 'TABLE', 'SHOP', '.', 'Orders', '']
"""

from __future__ import annotations

import re

from airflow_provider_cdc.sources.relational.sql_token_cursor import (
    BAD,
    END,
    NUMBER,
    OP,
    QUOTED,
    REST_OF_COMMENT,
    STRING,
    WORD,
    SqlToken,
)

_CLOSING = {"[": "]", "{": "}", "<": ">", "(": ")"}
_PATTERN = re.compile(
    rf"""
    (?P<skip>(?:[\s\0]++|--[^\n]*+|/\*{REST_OF_COMMENT}\*/)+)
    |(?P<delimited>[nN]?[qQ]'(?P<delimiter>[^\s]))
    |(?P<string>[nN]?'(?:[^']++|'')*+')
    |(?P<quoted>"[^"\0]++")
    |(?P<number>(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?[fFdD]?)(?![\w$\#])
    |(?P<word>[^\W\d_][\w$\#]*+)
    |(?P<op>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_REST = re.compile(rf"(?:[\s\0;/]|--[^\n]*+|/\*{REST_OF_COMMENT}\*/)*")


def fold_name(name: str) -> str:
    """Spell an unquoted name as the dictionary does: upper case, letter by letter.

    >>> fold_name("straße_1")
    'STRAßE_1'
    """
    return name.upper() if name.isascii() else "".join(u if len(u := c.upper()) == 1 else c for c in name)


def tokenize(sql: str, limit: int | None = None) -> list[SqlToken]:
    """Return the tokens of the text's one statement; the last is an ``end`` or a ``bad`` one.

    A statement ends at ``;`` or at a ``/`` on a separate line; after that nothing but more of them may follow. With ``limit``
    reading stops after about that many tokens.
    """
    tokens: list[SqlToken] = []
    at, length = 0, len(sql)
    while at < length and (limit is None or len(tokens) < limit):
        match = _PATTERN.match(sql, at)
        kind = match.lastgroup if match else None
        if match is None or kind is None:  # cannot be: the last alternative takes anything
            break
        start, at = at, match.end()
        if kind == "skip":
            continue
        if kind == "delimiter":
            kind = "delimited"
        if kind == "delimited":
            close = _CLOSING.get(match["delimiter"], match["delimiter"]) + "'"
            end = sql.find(close, at)
            if end < 0:
                return [*tokens, SqlToken(BAD, "", "a q'…' literal has no end", start, length)]
            tokens.append(SqlToken(STRING, "", sql[at:end], start, end + 2))
            at = end + 2
        elif kind == OP:
            char = sql[start]
            if char == ";" or (char == "/" and _ends_line(sql, start)):
                return [*tokens, _last(sql, start)]
            if char in "'\"" or sql.startswith("/*", start):
                return [*tokens, SqlToken(BAD, "", f"the token that starts with {char} has no end", start, length)]
            tokens.append(SqlToken(OP, char, char, start, at))
        else:
            tokens.append(_token(kind, match[0], start, at))
    return [*tokens, SqlToken(END, "", "", at, at)]


def _ends_line(sql: str, at: int) -> bool:
    """Check whether a slash is alone on its line, and nothing but more ends follows."""
    alone = at > 0 and not sql[sql.rfind("\n", 0, at) + 1 : at].strip(" \t\r\0;")
    return alone and not sql[at:].strip(" \r\n\t\0;/")


def _last(sql: str, at: int) -> SqlToken:
    match = _REST.match(sql, at)
    if match is None or match.end() < len(sql):
        return SqlToken(BAD, "", "more than one statement", at, len(sql))
    return SqlToken(END, "", "", at, at)


def _token(kind: str, text: str, start: int, end: int) -> SqlToken:
    if kind == WORD:
        folded = fold_name(text)
        return SqlToken(WORD, folded, folded, start, end)
    if kind == QUOTED:
        return SqlToken(QUOTED, "", text[1:-1], start, end)
    if kind == STRING:
        return SqlToken(STRING, "", text[text.index("'") + 1 : -1].replace("''", "'"), start, end)
    return SqlToken(NUMBER, "", text, start, end)
