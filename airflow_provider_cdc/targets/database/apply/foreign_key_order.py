"""Order of tables in databases that check foreign keys after each statement: rows that others refer to are written first, and deleted last."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from airflow_provider_cdc.changelog.reading.arrow_row_matching import match_keys
from airflow_provider_cdc.changelog.reading.pending_batches import PendingBatches
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.targets.database.dialects.target_dialect import TargetDialect
from airflow_provider_cdc.targets.database.events.event_operation_reader import TableOperation
from airflow_provider_cdc.targets.database.schema.target_table import DatabaseTargetTable

Topics = Sequence[tuple[str, PendingBatches]]


class DeletesRejected(Exception):
    """Rows that were to go last cannot go: then each table is written by itself."""


class DeferredDeletes:
    """Deletes that wait until all tables of a transaction are written: until then, rows of others may refer to these."""

    def __init__(self, dialect: TargetDialect) -> None:
        self._dialect, self._keys, self._at_once = dialect, dict[str, pa.Table](), set[str]()

    def restart_table(self, topic: str, *, at_once: bool = False) -> None:
        """Discard the waiting rows of a table, which is written again, or not at all.

        :param at_once: its deletes do not wait: a value that is unique may go from a row that goes to another one
        """
        self._keys.pop(topic, None)
        (self._at_once.add if at_once else self._at_once.discard)(topic)

    def release_step(
        self, connection: sa.Connection, table: DatabaseTargetTable, step: TableOperation
    ) -> TableOperation | None:
        """Return a step as it is to be made now; ``None`` if it waits."""
        topic = table.topic
        if step.action == "delete" and topic not in self._at_once:
            waiting_keys = self._keys.get(topic)
            self._keys[topic] = step.rows if waiting_keys is None else pa.concat_tables([waiting_keys, step.rows])
            return None
        if topic not in self._keys:
            return step
        if step.action == "empty":
            self.restart_table(topic)
        elif step.action == "move":
            self.delete_deferred_rows(connection, table)
        elif (again := self._again(topic, step.rows)) is not None:
            if step.rows.num_columns < len(
                table.fields
            ):  # values that the event leaves out are not those of the row that goes
                self._dialect.delete(connection, table, again)
            return replace(step, new=False)
        return step

    def delete_deferred_rows(self, connection: sa.Connection, table: DatabaseTargetTable) -> None:
        """Delete the rows that have waited."""
        if (keys := self._keys.pop(table.topic, None)) is not None and keys.num_rows:
            self._dialect.delete(connection, table, keys)

    def _again(self, topic: str, rows: pa.Table) -> pa.Table | None:
        """Keys that come again, and do not wait any more."""
        held = self._keys[topic]
        come = match_keys(held, rows.select(held.column_names))
        if not come.any():
            return None
        self._keys[topic] = held.filter(pa.array(~come))
        return held.filter(pa.array(come))


def find_table_references(
    dialect: TargetDialect,
    connection: sa.Connection,
    topics: Topics,
    build_table: Callable[[PendingBatches], DatabaseTargetTable],
    *,
    at_once: bool = False,
) -> dict[str, set[str]]:
    """Return topic → topics whose tables its own refers to, by foreign keys that are checked after each statement.

    :param at_once: as of :meth:`TargetDialect.defer_constraints`
    """
    if not dialect.REFERENCES:
        return {}
    query = dialect.REFERENCES if at_once else dialect.REFERENCES + dialect.UNLESS_DEFERRED
    by_name = dict[tuple[str, str], str]()
    references = dict[str, set[str]]()
    for child_schema, child, parent_schema, parent, schema in connection.exec_driver_sql(query).all():
        if not by_name:
            by_name = _names(topics, build_table, schema.strip())
        child_topic, parent_topic = (
            by_name.get((child_schema.strip(), child)),
            by_name.get((parent_schema.strip(), parent)),
        )
        if child_topic is not None and parent_topic is not None and child_topic != parent_topic:
            references.setdefault(child_topic, set()).add(parent_topic)
    return references


def _names(
    topics: Topics, build_table: Callable[[PendingBatches], DatabaseTargetTable], schema: str
) -> dict[tuple[str, str], str]:
    """Map schema and name of tables to the topic.

    :param schema: of names without one
    """
    topics_by_name = dict[tuple[str, str], str]()
    for topic, pending in topics:
        try:
            name = build_table(pending).name
        except CdcError:
            continue  # reported when its turn comes
        topics_by_name[name.schema or schema, name.table] = topic
    return topics_by_name


def parents_first(topics: Iterable[str], refers: Mapping[str, set[str]]) -> list[str]:
    """Topics so that those come first that others refer to; in a circle, in any order.

    >>> parents_first(["lines", "orders", "people"], {"lines": {"orders"}, "orders": {"people"}})
    ['people', 'orders', 'lines']
    """
    ordered, visited = list[str](), set[str]()
    for first in topics:
        todo: list[tuple[str, bool]] = [(first, False)]
        while todo:
            topic, after = todo.pop()
            if after:
                ordered.append(topic)
            elif topic not in visited:
                visited.add(topic)
                todo += [(topic, True), *((parent, False) for parent in sorted(refers.get(topic, ()), reverse=True))]
    return ordered


def sort_parents_first(topics: Topics, refers: Mapping[str, set[str]]) -> list[Any]:
    """Sort topics as :func:`parents_first`, with their pending batches."""
    pending = dict(topics)
    return [(topic, pending[topic]) for topic in parents_first(pending, refers)]
