"""The location of the table of a topic: a path or URL, or the name of a catalog's table.

A path has a ``/``. A name has parts with dots between them, ``catalog.schema.table``; a part that has a dot itself is quoted
with backquotes, as in SQL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.table_schema import TableId

_PART = re.compile(r"`((?:[^`]|``)*)`|([^`.]+)")


def is_path(location: str) -> bool:
    """Check whether it is a path or URL, and not a name.

    >>> is_path("s3a://lake/shop/orders"), is_path("lake.shop.orders")
    (True, False)
    """
    return "/" in location


def one_name(path: str) -> str:
    """Return a path or URL by which it is known again.

    S3 and the local disk have several names, and slashes may be double.

    >>> one_name("s3a://lake//shop/"), one_name("file:///lake/shop"), one_name("/lake/shop")
    ('s3://lake/shop', '/lake/shop', '/lake/shop')
    """
    plain = re.sub(r"^file:/+", "/", re.sub(r"^s3[an]:", "s3:", path))
    return re.sub(r"(?<!:)/{2,}", "/", plain).rstrip("/")


def split_table_name(name: str) -> tuple[str, ...]:
    """Return the parts of a table's name.

    >>> split_table_name("lake.shop.`orders.2024`")
    ('lake', 'shop', 'orders.2024')

    :raises ConfigError: it is not the name of a table in a catalog
    """
    parts, at = [], 0
    while match := _PART.match(name, at):
        parts.append(match[2] if match[1] is None else match[1].replace("``", "`"))
        at = match.end() + 1
        if name[match.end() : at] != ".":
            break
    if at <= len(name) or len(parts) < 3:
        raise ConfigError(
            f"{name!r} is neither a path nor the name of a table in a catalog.",
            safe="No table was changed.",
            remedy="use a path with a slash, /lake/{database}/{table}, or a name with three or more parts, catalog.{database}.{table}",
        )
    return tuple(parts)


def table_location(
    location: str,
    connector: str,
    topic: str,
    table: TableId,
    groups: Mapping[str, str] | None = None,
    values: Mapping[str, str] | None = None,
) -> str:
    """Return the location of a topic's table.

    >>> table_location("/lake/{database}/{table}", "shop", "shop.inventory.orders", TableId(namespace="inventory", name="orders"))
    '/lake/inventory/orders'
    >>> table_location("lake.{database}.{table}", "shop", "t", TableId(namespace="inventory", name="orders.2024"))
    'lake.inventory.`orders.2024`'

    :param groups: further names that it may have in braces, and their texts
    :param values: the same of texts that rows have: one that is ``.`` or ``..`` is written ``%2E`` or ``%2E%2E``
    :param location: a template; that of a name is filled part by part, so that a dot in a source's name begins no new part
    :raises ConfigError: the location has a name in braces that is not known, or would lead out of the lake
    """
    names = {"connector": connector, "topic": topic, "database": table.namespace, "table": table.name, **(groups or {})}
    names = {k: _encoded(v) for k, v in names.items()} | {k: _dotless(_encoded(v)) for k, v in (values or {}).items()}
    if is_path(location):
        filled = _formatted(location, names)
        first, *others = filled.rpartition("://")[2].rstrip("/").split("/")
        wrong = bool({"", ".", ".."} & set(others) or first in (".", ".."))
    else:
        each = [_formatted(part, names) for part in split_table_name(location)]
        filled = ".".join(map(_as_part, each))
        wrong = bool({"", ".", ".."} & set(each))
    if wrong:
        raise ConfigError(
            f"The table of {topic} would be at {filled!r}: no part of a location may be empty, '.' or '..'.",
            safe="No table was changed.",
            remedy="leave the table out with table.exclude.list, or use another location, for example --location /lake/{topic}",
        )
    return filled


def _encoded(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F")


def _dotless(text: str) -> str:
    return text.replace(".", "%2E") if text in (".", "..") else text


def _as_part(text: str) -> str:
    escaped = text.replace("`", "``")
    return f"`{escaped}`" if {".", "`"} & set(text) else text


def _formatted(template: str, names: Mapping[str, str]) -> str:
    try:
        return template.format(**names)
    except (KeyError, IndexError, ValueError, AttributeError) as e:
        raise ConfigError(
            f"The location {template!r} cannot be used: {e} is not a valid name in braces. "
            f"Valid names are: {', '.join(names)}.",
            remedy="for example --location /lake/{database}/{table}",
        ) from e
