"""What the include and exclude lists let in when an offset was written.

An offset remembers every list that decides what is captured, as the source's configuration names them
(:attr:`~.config_base.Configuration.LISTS`). So a list that lets in more than before is noticed, whatever it is called: tables that
it adds are read, and where existing rows lack something, people are told of which tables, and what reads them.

    >>> config = ConnectorConfig.parse({"topic.prefix": "shop", "table.include.list": "inventory.orders"})
    >>> text(config)
    '{"lists": {"table.include.list": ["inventory.orders"]}}'
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from airflow_provider_cdc.core.config import ConnectorConfig
from airflow_provider_cdc.core.config_base import Decides
from airflow_provider_cdc.core.filters import Filters
from airflow_provider_cdc.core.schema import NOT_CAPTURED, TableId, TableSchema

_FIRST = ("database.include.list", "database.exclude.list", "table.include.list", "table.exclude.list")
"""All that the offsets of earlier releases remember."""


def text(config: ConnectorConfig) -> str:
    """The lists in force, as an offset remembers them (``Offset.tables_filter``)."""
    public, named = config.public(), config.lists()
    return json.dumps({"lists": {name: public[name] for name in sorted(named) if public.get(name)}})


class ListsBefore:
    """The lists as they were when an offset was written.

    :param now: the configuration in force
    :param remembered: what the offset says of its lists
    :ivar config: ``now``, with those lists
    :ivar changed: some list is another one now
    :ivar unknown: lists that decide which tables are captured, and of which the offset says nothing
    """

    def __init__(self, now: ConnectorConfig, remembered: str) -> None:
        found = json.loads(remembered or "{}")
        whole = "lists" in found
        lists: Mapping[str, object] = found["lists"] if whole else found
        named = now.lists()
        known = [name for name in named if whole or name in _FIRST]
        fields = {str(field.alias): name for name, field in type(now).model_fields.items()}
        self._now = now
        self.config = now.model_copy(update={fields[name]: _as(now, fields[name], lists.get(name)) for name in known})
        self._fields = {name: fields[name] for name in known}
        self.changed = not whole or remembered != text(now)
        self.unknown = sorted(n for n in named if named[n] is Decides.TABLES and n not in known and n.endswith(".list"))
        self.filters = Filters(self.config)

    def without_columns(self, tables: Iterable[TableSchema]) -> list[TableId]:
        """Of the tables, those of which columns are captured now that were not."""
        now = Filters(self._now)
        return [
            schema.id
            for schema in tables
            if any(
                now.in_images(schema.id, c.name) and not self.filters.in_images(schema.id, c.name)
                for c in schema.columns
                if c.type != NOT_CAPTURED
            )
        ]

    def wider_changes(self) -> list[str]:
        """Lists that let in changes now which they left out, of whatever table."""
        kinds = self._now.lists()
        return sorted(
            name
            for name, field in self._fields.items()
            if kinds[name] is Decides.CHANGES
            and _wider(name, {*getattr(self.config, field)}, {*getattr(self._now, field)})
        )


def _wider(name: str, before: set[str], now: set[str]) -> bool:
    if "include" in name:
        return bool(before) and not (now and now <= before)
    return not before <= now


def _as(config: ConnectorConfig, field: str, value: object) -> object:
    """A list from its JSON form."""
    kind = type(config).model_fields[field].get_default()
    if value is None or isinstance(value, str):
        return kind if value is None else value
    assert isinstance(value, list)
    return type(kind)(value)
