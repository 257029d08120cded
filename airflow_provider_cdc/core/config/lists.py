"""What the include and exclude lists let in when an offset was written.

An offset remembers every list and switch that decides what is captured, as the source's configuration names them
(:attr:`~.config_base.Configuration.LISTS`). So one that lets in more than before is noticed, whatever it is called: tables that
it adds are read, and where existing rows lack something, people are told of which tables, and what reads them.

    >>> config = ConnectorConfig.parse({"topic.prefix": "shop", "table.include.list": "inventory.orders"})
    >>> json.loads(text(config))["lists"]["table.include.list"]
    ['inventory.orders']
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping

from airflow_provider_cdc.core.config.base import Decides
from airflow_provider_cdc.core.config.connector import ConnectorConfig
from airflow_provider_cdc.core.config.filters import Filters
from airflow_provider_cdc.core.config.select_overrides import name_parts
from airflow_provider_cdc.core.model.schema import TableId, TableSchema

_FIRST = ("database.include.list", "database.exclude.list", "table.include.list", "table.exclude.list")
"""All that the offsets of earlier releases remember."""


def text(config: ConnectorConfig) -> str:
    """The lists in force, as an offset remembers them (``Offset.tables_filter``)."""
    fields = {str(field.alias): name for name, field in type(config).model_fields.items()}
    values = {name: getattr(config, fields[name]) for name in sorted(config.lists())}
    kept = {name: value for name, value in values.items() if value or isinstance(value, bool)}
    return json.dumps({"lists": {n: sorted(v) if isinstance(v, frozenset) else v for n, v in kept.items()}})


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
        # of a switch, an offset that does not name it says nothing; of a list, that it was empty
        known = [n for n in known if n in lists or not isinstance(getattr(now, fields[n]), (bool, enum.Enum))]
        self._now = now
        self.config = now.model_copy(update={fields[name]: _as(now, fields[name], lists.get(name)) for name in known})
        self._fields = {name: fields[name] for name in known}
        self.changed = not whole or remembered != text(now)
        self.unknown = sorted(n for n in named if named[n] is Decides.TABLES and n not in known and n.endswith(".list"))
        self.filters = Filters(self.config)

    def without_columns(self, tables: Iterable[TableSchema]) -> list[TableId]:
        """Of the tables, those of which columns, or more of the values of columns, are captured now than were."""
        now, then = Filters(self._now), self.filters
        return [s.id for s in tables if any(now.shown(s, c) > then.shown(s, c) for c in s.columns)]

    def without_rows(self, tables: Iterable[TableId]) -> list[TableId]:
        """Of the tables, those of which a snapshot read what another query gave than now, or than all rows are."""
        found = []
        for name, field in self._fields.items():
            if self._now.lists()[name] is Decides.QUERIES:
                then, now = getattr(self.config, field), getattr(self._now, field)
                other = {_folded(table) for table, query in then.items() if query != now.get(table)}
                found += [t for t in tables if {_folded(str(t)), _folded(t.full_name)} & other]
        return found

    def retyped(self, known: TableSchema, now: TableSchema) -> list[str]:
        """Columns of a table, declared as they were, whose type is another one by a property that decides the form of values."""
        if not self.other(Decides.FORM):
            return []
        present = {c.name: c for c in now.columns}
        both = [(c, present[c.name]) for c in known.columns if c.name in present]
        return [c.name for c, p in both if c.declared == p.declared and c.type != p.type]

    def other(self, *kinds: Decides) -> list[str]:
        """The properties that decide this, and are not as they were."""
        named = self._now.lists()
        return [
            n for n, f in self._fields.items() if named[n] in kinds and getattr(self.config, f) != getattr(self._now, f)
        ]

    def wider_changes(self) -> list[str]:
        """Lists and switches that let in changes now which they left out, of whatever table."""
        return self._now.wider(self.config)


def _folded(table: str) -> str:
    return ".".join(name_parts(table)).casefold()


def _as(config: ConnectorConfig, field: str, value: object) -> object:
    """A list from its JSON form."""
    kind = type(config).model_fields[field].get_default()
    if value is None or isinstance(value, str):
        return kind if value is None else value
    if isinstance(value, dict):
        return {name: tuple(one) if isinstance(one, list) else one for name, one in value.items()}
    return type(kind)(value) if isinstance(value, list) else value
