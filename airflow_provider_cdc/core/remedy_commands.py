"""The commands that errors and notes tell people to run, fit for a shell whatever connectors and tables are called.

Each command in a text is made by :func:`format_cdc_command`, so that it names its connector and comes out quoted. In a sentence it stands between backticks; a
remedy that is nothing but a command has none. Sources know how their connector is called by ``ConnectorConfig.connector_name``.
"""

from __future__ import annotations

import re
import shlex

__all__ = ["format_cdc_command", "format_exact_pattern", "read_whole"]

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]*)?")
"""Names that are patterns of themselves alone. A single dot needs no escape: every table's name has one, so that it cannot stand for anything else.
Of several, each can, as ``a.b.c`` shows, which matches ``axb.c``, too."""
_IN_THE_WAY = frozenset("'\"`=")
"""Of a text that is quoted for a shell and stands between backticks; of names in quotes, and of ``TABLE=SQL``."""


def format_cdc_command(command: str, *names: object, **options: object) -> str:
    """Build a command of ``airflow cdc``.

    >>> format_cdc_command("snapshot", "shop", "shop.orders", type="blocking", replace=True)
    'airflow cdc snapshot shop shop.orders --type blocking --replace'
    >>> format_cdc_command("rebuild", "shop", "shop.$(x)")
    "airflow cdc rebuild shop 'shop.$(x)'"
    >>> format_cdc_command("rebuild", "shop", "-shop.t", location="-there")
    'airflow cdc rebuild --location=-there -- shop -shop.t'

    :param command: its words, such as ``offset show``
    :param names: the connector, tables …, in the order in which the command takes them
    :param options: ``with_changelog=True`` is ``--with-changelog``; those that are ``None`` or ``False`` are left out
    """
    words = [str(name) for name in names]
    flags = [word for name, value in options.items() for word in _option(name.replace("_", "-"), value)]
    arguments = [*flags, "--", *words] if any(word.startswith("-") for word in words) else [*words, *flags]
    return shlex.join(["airflow", "cdc", *command.split(), *arguments])


def _option(name: str, value: object) -> list[str]:
    if value is None or value is False:
        return []
    if value is True:
        return [f"--{name}"]
    text = str(value)
    return [f"--{name}={text}"] if text.startswith("-") else [f"--{name}", text]


def read_whole(connector: str, *tables: object) -> str:
    """Return the command that has tables read whole again, so that their rows replace those of the targets.

    >>> read_whole("shop", "shop.orders")
    'airflow cdc snapshot shop shop.orders --type blocking --replace'
    """
    return format_cdc_command("snapshot", connector, *map(format_exact_pattern, tables), type="blocking", replace=True)


def format_exact_pattern(table: object) -> str:
    """Return a pattern, as ``airflow cdc snapshot`` and signals take them, of the table of this name alone.

    The pattern has no quotes and is one line.

    Two tables that are both called so cannot be distinguished: ``c`` of a database ``a.b``, and ``b.c`` of a database ``a``.

    >>> format_exact_pattern("shop.orders"), format_exact_pattern("shop.o'brien s"), format_exact_pattern("shop.fs.files")
    ('shop.orders', 'shop\\.o\\x27brien\\x20s', 'shop\\.fs\\.files')
    """
    name = str(table)
    return name if _PLAIN.fullmatch(name) else "".join(map(_exact, name))


def _exact(character: str) -> str:
    if character in _IN_THE_WAY or character.isspace() or not character.isprintable():
        code = ord(character)
        return f"\\x{code:02x}" if code < 1 << 8 else f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"
    return re.escape(character)
