"""``converters``: a list of names, and for each a ``<name>.type`` and further properties.

See the Debezium documents, "Custom converters".

    >>> with_converters({"converters": "b", "b.type": "x.Y", "b.selector": "shop.*"})
    {'converters': [{'name': 'b', 'type': 'x.Y', 'selector': 'shop.*'}]}

A converter is a rule on what a column becomes, in snapshots and in the stream alike; Java classes cannot be loaded here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any


def with_converters(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties, with those of each converter at the list that names them."""
    remaining = dict(properties)
    named = remaining.get("converters")
    if not isinstance(named, str):  # as the public properties have it
        return remaining
    gathered = []
    for name in filter(None, (part.strip() for part in named.split(","))):
        options = {key: remaining.pop(key) for key in [*remaining] if key.startswith(f"{name}.")}
        gathered.append({"name": name} | {key.removeprefix(f"{name}."): _text(v) for key, v in options.items()})
    return remaining | {"converters": gathered}


def check_converters(converters: Sequence[Mapping[str, str]], types: Mapping[str, Mapping[str, str]]) -> None:
    """Check that converters exist and have only known properties.

    :param types: class → its properties → ``patterns`` or ``bool``
    :raises ValueError: there is no such converter, or it has no such property
    """
    for converter in converters:
        name, type_ = converter.get("name", ""), converter.get("type", "")
        if type_ not in types:
            problem = f"{type_!r} is not a known type" if type_ else "required and not set"
            raise ValueError(f"{name}.type: {problem}. Valid values are: {', '.join(types)}")
        for key, value in converter.items():
            kind = {"name": "", "type": ""}.get(key, types[type_].get(key))
            if kind is None:
                raise ValueError(f"{name}.{key}: unknown property; {name} has {', '.join(types[type_])}")
            if kind == "bool" and value not in ("true", "false"):
                raise ValueError(f"{name}.{key}: {value!r} is neither true nor false")
            if kind == "patterns":
                _check_patterns(f"{name}.{key}", value)


def is_column_selected(patterns: str | None, column: str) -> bool:
    """Check whether one of the patterns matches the whole name, without regard to case; without patterns all do."""
    if patterns is None:
        return True
    return any(re.fullmatch(pattern.strip(), column, re.IGNORECASE) for pattern in patterns.split(","))


def _check_patterns(name: str, value: str) -> None:
    for pattern in value.split(","):
        try:
            re.compile(pattern.strip())
        except re.error as e:
            raise ValueError(f"{name}: {pattern!r} is not a regular expression: {e}") from None


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
