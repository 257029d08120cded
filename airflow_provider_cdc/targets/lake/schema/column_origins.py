"""Notes where the columns of each table come from, when it changes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from airflow_provider_cdc.changelog.reports.column_origins import ColumnOrigins
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.targets.lake.formats.target_interface import Target
from airflow_provider_cdc.targets.lake.rules.projection import Projection
from airflow_provider_cdc.targets.lake.types.variant_spark_udfs import VARIANT

log = logging.getLogger("airflow_provider_cdc.targets.lake.schema.column_origins")


class ColumnOriginRecorder:
    """Column origins of the tables of one target.

    Used by several threads at once; a table by one of them.

    :param target: kind of the tables
    :param location: of the target, as the report has it
    """

    def __init__(self, store: ColumnOrigins, target: str, location: str) -> None:
        self._store, self._of = store, (target, location)
        self._lock, self._recorded, self._changed = threading.Lock(), dict[str, dict[str, Any]](), False
        self._read = False

    def record_columns(self, topic: str, target: Target, shape: Projection, schema: TableSchema) -> None:
        """Note the columns that a table has now. Costs nothing if it had them before."""
        types = {column.name: column.type for column in schema.columns}
        source, rule = types | ({shape.documents: VARIANT} if shape.documents else {}), shape.format_recorded_rule()
        recorded = self._tables().get(topic, {})
        if (recorded.get("location"), recorded.get("source"), recorded.get("rule")) == (target.location, source, rule):
            return
        entry = {
            "location": target.location, "path": target.resolve_data_path(), "catalog": dict(target.describe_catalog()), "table": schema.id.full_name,
            "source": source, "rule": rule, "filter": sorted(shape.filter.needs) if shape.filter else [],
            "columns": find_column_origins(target.read_column_types(), shape, schema),
        }  # fmt: skip
        with self._lock:
            self._recorded[topic], self._changed = entry, True

    def write_lineage(self) -> None:
        """Write new entries.

        Lineage is not worth an apply: the apply continues if this cannot be done, and the next round tries again.
        """
        with self._lock:
            if not self._changed:
                return
            target, location = self._of
            try:
                self._store.write({"target": target, "location": location, "tables": self._recorded})
                self._changed = False
            except (CdcError, OSError) as e:
                log.warning("The origins of columns could not be stored; a later round tries again: %s", e)

    def _tables(self) -> dict[str, dict[str, Any]]:
        with self._lock:
            if not self._read:
                try:
                    self._recorded = self._store.read(*self._of)
                except (CdcError, OSError) as e:
                    log.warning("The origins of columns could not be loaded; they are determined again: %s", e)
                self._read = True
            return self._recorded


def find_column_origins(there: Mapping[str, str], shape: Projection, schema: TableSchema) -> dict[str, dict[str, Any]]:
    """Return the origin of each column of a table.

    :param there: the table's columns and their types
    """
    casts = {old.lower(): type_ for old, type_ in shape.rule.columns.cast.items()}
    origins: dict[str, dict[str, Any]] = {}
    for old, new in shape.map_column_names(schema).items():
        cast = casts.get(old.lower()) or (VARIANT if old == shape.documents else None)
        origins[new.lower()] = {"from": [old], "how": "identity"} | ({"how": "cast", "text": cast} if cast else {})
    for name, expression in shape.computed.items():
        origins[name.lower()] = {"from": sorted(expression.needs), "how": "computed", "text": expression.sql}
    for name, text in shape.constants.items():
        origins[name.lower()] = {"from": [], "how": "constant", "text": text}
    for name, metadata in shape.rule.metadata_columns.items():
        origins[name.lower()] = {"from": [], "how": "event", "text": metadata}
    for name in shape.map_flag_types():
        origins[name.lower()] = {"from": [], "how": "mode", "text": shape.mode}
    gone = {"from": [], "how": "dropped"}
    return {name: {"type": type_, **origins.get(name.lower(), gone)} for name, type_ in there.items()}
