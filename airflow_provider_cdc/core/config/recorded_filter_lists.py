"""Compares the include and exclude lists with those in force when an offset was written.

An offset records every list and switch that selects the captured rows, as the source's configuration names them
(:attr:`~.base_configuration.Configuration`). So a run notices when one of them selects more than before: it reads tables that were
added; if existing rows lack something, it warns, naming the tables and the command that reads them.

    >>> config = TableConfig.parse({"topic.prefix": "shop", "table.include.list": "inventory.orders"})
    >>> json.loads(format_filter_lists(config))["lists"]["table.include.list"]
    ['inventory.orders']
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from airflow_provider_cdc.core.config.base_configuration import PropertyEffect
from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.config.select_overrides import name_parts
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema


def format_filter_lists(config: ConnectorConfig) -> str:
    """Format the lists in force, in the form that an offset records them (``Offset.tables_filter``)."""
    fields = {str(field.alias): name for name, field in type(config).model_fields.items()}
    values = {name: getattr(config, fields[name]) for name in sorted(config.list_capture_properties())}
    lists = {name: value for name, value in values.items() if value or isinstance(value, bool)}
    return json.dumps({"lists": {n: sorted(v) if isinstance(v, frozenset) else v for n, v in lists.items()}})


class RecordedFilterLists:
    """The lists as they were when an offset was written.

    :param now: the configuration in force
    :param remembered: what the offset says of its lists
    :ivar config: ``now``, with those lists
    :ivar changed: some list has changed
    """

    def __init__(self, now: ConnectorConfig, remembered: str) -> None:
        lists: Mapping[str, object] = json.loads(remembered)["lists"]
        fields = {str(field.alias): name for name, field in type(now).model_fields.items()}
        self._now = now
        self._fields = {name: fields[name] for name in now.list_capture_properties()}
        # an offset without a list means that it was empty
        then = {field: _as(now, field, lists.get(name)) for name, field in self._fields.items()}
        self.config = now.model_copy(update=then)
        self.changed = remembered != format_filter_lists(now)
        self.filters = Filters(self.config)

    def without_columns(self, tables: Iterable[TableSchema]) -> list[TableId]:
        """Return the tables of which more columns, more of their values, or other pseudonyms are captured now than before."""
        now, then = Filters(self._now), self.filters
        return [
            s.id
            for s in tables
            if any(
                now.compute_visible_length(s, c) > then.compute_visible_length(s, c)
                or now.find_pseudonym(s, c) not in (None, then.find_pseudonym(s, c))
                for c in s.columns
            )
            or self._now.shows_more(self.config, s.id)
        ]

    def without_rows(self, tables: Iterable[TableId]) -> list[TableId]:
        """Return the tables of which a snapshot has read the result of another query than the present one."""
        newly_queried = []
        for name, field in self._fields.items():
            if self._now.list_capture_properties()[name] is PropertyEffect.QUERIES:
                then, now = getattr(self.config, field), getattr(self._now, field)
                other = {_folded(table) for table, query in then.items() if query != now.get(table)}
                newly_queried += [t for t in tables if {_folded(str(t)), _folded(t.full_name)} & other]
        return newly_queried

    def find_retyped_columns(self, captured: TableSchema, now: TableSchema) -> list[str]:
        """List unchanged columns of a table whose captured type has changed by a property.

        That is the captured type, or the one that tables are to have; the property decides the form of values.
        """
        if not self.find_changed_properties(PropertyEffect.FORM):
            return []
        present = {c.name: c for c in now.columns}
        both = [(c, present[c.name]) for c in captured.columns if c.name in present]
        variants = (
            {captured.variant_column, now.variant_column} if captured.variant_column != now.variant_column else set()
        )
        return [c.name for c, p in both if c.declared == p.declared and (c.type != p.type or c.name in variants)]

    def find_changed_properties(self, *kinds: PropertyEffect) -> list[str]:
        """List the properties of this kind that have changed."""
        named = self._now.list_capture_properties()
        return [
            n for n, f in self._fields.items() if named[n] in kinds and getattr(self.config, f) != getattr(self._now, f)
        ]

    def wider_changes(self) -> list[str]:
        """List the lists and switches that now select changes which they left out before, of any table."""
        return self._now.find_widened_lists(self.config)


def _folded(table: str) -> str:
    return ".".join(name_parts(table)).casefold()


def _as(config: ConnectorConfig, field: str, value: object) -> object:
    """Parse a list from its JSON form."""
    kind = type(config).model_fields[field].get_default()
    if value is None or isinstance(value, str):
        return kind if value is None else value
    if isinstance(value, dict):
        return {name: tuple(entry) if isinstance(entry, list) else entry for name, entry in value.items()}
    return type(kind)(value) if isinstance(value, list) else value
