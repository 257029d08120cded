"""``converters``: a list of names, and for each a ``<name>.type`` and further properties.

See the Debezium documents, "Custom converters".

    >>> with_converters({"converters": "b", "b.type": "x.Y", "b.selector": "shop.*"})
    {'converters': [{'name': 'b', 'type': 'x.Y', 'selector': 'shop.*'}]}

A converter is a rule on what a column becomes, in snapshots and in the stream alike. Its type is a documented class that is built in, or the name of
an entry point (:mod:`.column_converter`). Java classes cannot be loaded here.

This module is imported at DAG parse: it must stay light.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_cdc.core.entry_points import CONVERTERS, list_extensions


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
    """Check that converters exist, and that built-in ones have only known properties.

    Properties of a user's own converter are its own affair.

    :param types: class that is built in → its properties → ``patterns`` or ``bool``
    :raises ValueError: there is no such converter, or it has no such property
    """
    for converter in converters:
        name, type_ = converter.get("name", ""), converter.get("type", "")
        if type_ not in types:
            _check_installed(name, type_, types)
            continue
        for key, value in converter.items():
            kind = {"name": "", "type": ""}.get(key, types[type_].get(key))
            if kind is None:
                raise ValueError(f"{name}.{key}: unknown property; {name} has {', '.join(types[type_])}")
            if kind == "bool" and value not in ("true", "false"):
                raise ValueError(f"{name}.{key}: {value!r} is neither true nor false")
            if kind == "patterns":
                _check_patterns(f"{name}.{key}", value)


def _check_installed(name: str, type_: str, types: Mapping[str, Mapping[str, str]]) -> None:
    installed = list_extensions(CONVERTERS)
    if type_ in installed:
        return
    problem = f"{type_!r} is not a known type" if type_ else "required and not set"
    hint = "; Java classes cannot be loaded: write the converter in Python" if "." in type_ else ""
    valid = ", ".join([*types, *sorted(installed)])
    names = f"Valid values are: {valid}" if valid else "No value is installed"
    raise ValueError(f"{name}.type: {problem}{hint}. {names} (entry points of group {CONVERTERS})")


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
