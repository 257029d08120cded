"""Modes that users write themselves: ``custom`` names an entry point, which has to be there.

This module is imported at DAG parse: it must stay light.
"""

from __future__ import annotations

import difflib

from airflow_provider_cdc.core.config.base_configuration import Configuration
from airflow_provider_cdc.core.entry_points import SNAPSHOT_LOCKS, SNAPSHOT_POLICIES, SNAPSHOT_QUERIES, list_extensions

_GROUPS = {
    "snapshot_mode": SNAPSHOT_POLICIES,
    "snapshot_query_mode": SNAPSHOT_QUERIES,
    "snapshot_locking_mode": SNAPSHOT_LOCKS,
}
"""Field of a mode → the group of its entry points."""


def refuse_unknown(config: Configuration) -> None:
    """Reject custom modes that no entry point provides.

    :raises ValueError: a mode is ``custom``, and there is no entry point of the name that is given
    """
    for mode, group in _GROUPS.items():
        field = type(config).model_fields.get(mode)
        if field is not None and getattr(config, mode) == "custom":
            _refuse_unknown(str(field.alias), getattr(config, f"{mode}_custom_name"), group)


def _refuse_unknown(mode: str, name: str | None, group: str) -> None:
    """Reject a name without an entry point.

    :raises ValueError: there is no such entry point
    """
    there = sorted(list_extensions(group))
    if name not in there:
        problem = f"{name!r} is not installed" if name else f"required by {mode}=custom, and not set"
        near = difflib.get_close_matches(name or "", there, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        names = f"Valid values are: {', '.join(there)}" if there else "No value is installed"
        raise ValueError(f"{mode}.custom.name: {problem}{hint} {names} (entry points of group {group})")
