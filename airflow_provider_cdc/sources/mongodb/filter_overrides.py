"""``snapshot.collection.filter.overrides``: a list of collections, and for each a property with the filter of its snapshot.

    >>> with_filters({LIST: "shop.orders", f"{LIST}.shop.orders": '{"paid": true}'})
    {'snapshot.collection.filter.overrides': {'shop.orders': '{"paid": true}'}}

This module is imported at DAG parse: it must stay light.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from airflow_provider_cdc.core.errors import ConfigError

LIST: Final = "snapshot.collection.filter.overrides"


def with_filters(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties, with the filters of collections as values of the list that names the collections.

    :raises ConfigError: a collection is listed without a filter, a filter is of one that is not listed, or it is no document
    """
    remaining = dict(properties)
    listed = remaining.get(LIST, ())
    if isinstance(listed, dict):  # as the public properties have it
        return remaining
    filters = {k.removeprefix(f"{LIST}."): str(remaining.pop(k)) for k in properties if k.startswith(f"{LIST}.")}
    parts = listed if isinstance(listed, list | tuple) else str(listed).split(",")
    names = [name for part in parts if (name := str(part).strip())]
    if half := sorted({*names} ^ filters.keys()):
        name = half[0]
        problem = f"it has no filter in {LIST}.{name}" if name in names else f"it is not in the list of {LIST}"
        raise ConfigError(
            f"{LIST}: {name} is invalid: {problem}.",
            remedy="name each collection in the list, and set its filter",
        )
    for name, text in filters.items():
        try:
            is_document = isinstance(json.loads(text), dict)
        except (ValueError, RecursionError):
            is_document = False
        if not is_document:
            raise ConfigError(
                f"{LIST}.{name}: {text!r} is not a filter.",
                remedy='write a document in extended JSON, such as {"paid": true}',
            )
    remaining.pop(LIST, None)
    return remaining | ({LIST: filters} if filters else {})
