"""``snapshot.select.statement.overrides``: a list of tables, and for each a property with the SELECT that a snapshot reads.

    >>> with_statements({LIST: "shop.orders", f"{LIST}.shop.orders": "SELECT * FROM shop.orders WHERE paid"})
    {'snapshot.select.statement.overrides': {'shop.orders': 'SELECT * FROM shop.orders WHERE paid'}}

Names with a space, a bracket, a dot or a comma of their own are put into double quotes, all of a name or each part of it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, Final

from airflow_provider_cdc.core.errors import ConfigError

log = logging.getLogger(__name__)

LIST: Final = "snapshot.select.statement.overrides"
_MOST_WARNINGS: Final = 20
"""Tables without a statement that are named; pages parse lists of any length."""
_ENTRY = re.compile(r'(?:"(?:[^"]|"")*"|[^,])+')
_PART = re.compile(r'"((?:[^"]|"")*)"|([^".]+)')


def with_statements(properties: Mapping[str, Any], *, all_needed: bool = False) -> dict[str, Any]:
    """Return the properties, with the statements of tables as values of the list that names the tables.

    :param all_needed: a table that is listed without a statement is an error; otherwise a warning, and it is read whole
    :raises ConfigError: a statement of a table that is not listed, which would be without effect
    """
    remaining = dict(properties)
    listed = remaining.get(LIST, ())
    if isinstance(listed, dict):  # as the public properties have it
        return remaining
    by_name = {k.removeprefix(f"{LIST}."): str(remaining.pop(k)) for k in properties if k.startswith(f"{LIST}.")}
    statements = {name_parts(name): (name, statement) for name, statement in by_name.items()}
    selects: dict[str, str] = {}
    whole: list[str] = []
    for name in dict.fromkeys(_entries(listed)):
        _, statement = statements.pop(name_parts(name), ("", None))
        if statement is not None:
            selects[name] = statement
        elif all_needed:
            raise _half(name, f"it has no SELECT statement in {LIST}.{name}")
        else:
            whole.append(name)
    for name in whole[:_MOST_WARNINGS]:
        log.warning(
            "%s: %s has no SELECT statement in %s.%s; a snapshot reads the whole table.", LIST, name, LIST, name
        )
    if len(whole) > _MOST_WARNINGS:
        log.warning("%s: %d more tables have no SELECT statement.", LIST, len(whole) - _MOST_WARNINGS)
    if statements:
        raise _half(next(iter(statements.values()))[0], f"it is not in the list of {LIST}")
    remaining.pop(LIST, None)
    return remaining | ({LIST: selects} if selects else {})


def name_parts(name: str) -> tuple[str, ...]:
    """Return the parts of a table's name, without their quotes.

    >>> name_parts('"my shop"."orders.2024"'), name_parts('shop.orders'), name_parts('"my shop.orders"')
    (('my shop', 'orders.2024'), ('shop', 'orders'), ('my shop', 'orders'))
    """
    name, parts, at = name.strip(), [], 0
    while match := _PART.match(name, at):
        parts.append(match[2].strip() if match[1] is None else match[1].replace('""', '"'))
        at = match.end()
        if name[at : at + 1] != ".":
            break
        at += 1
    if at != len(name) or name[at - 1 :] == "." or not all(parts):
        return (name,)
    if len(parts) == 1 and name.startswith('"'):
        return tuple(parts[0].split("."))
    return tuple(parts)


def _entries(listed: Any) -> list[str]:
    if isinstance(listed, str):
        listed = _ENTRY.findall(listed)
    if not isinstance(listed, (list, tuple)) or not all(isinstance(name, str) for name in listed):
        raise ConfigError(f"{LIST}: {listed!r} is neither a list of strings nor a comma-separated string.")
    return [name.strip() for name in listed if name.strip()]


def _half(name: str, why: str) -> ConfigError:
    return ConfigError(f"{LIST}: {name!r}: {why}.", remedy="set both properties, or remove both")
