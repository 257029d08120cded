"""The commands that warnings of a run name as their repair."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from airflow_provider_cdc.core.config.filters import Filters
from airflow_provider_cdc.core.model.schema import TableSchema


def how_to_read(connector: str, tables: Iterable[TableSchema], filters: Filters) -> str:
    """Commands that read captured tables again: in chunks, or whole if they have no key."""
    keyed: list[str] = []
    whole: list[str] = []
    for schema in tables:
        (keyed if filters.key(schema) else whole).append(re.escape(str(schema.id)))
    kinds = ((keyed, ["--replace"]), (whole, ["--type", "blocking"]))
    return "; ".join(
        shlex.join(["airflow", "cdc", "snapshot", connector, *names, *options]) for names, options in kinds if names
    )
