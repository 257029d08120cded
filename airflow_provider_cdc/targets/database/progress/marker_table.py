"""The marker table, which records the batch of a connector that the tables of a database have.

It is in that database, and written in the transaction of the rows.
The row of the topic ``*`` says it of all tables; a table that is behind the others, as it could not take a change, has a separate row.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import uuid4

import sqlalchemy as sa

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.database.progress.binary_collation import (
    TRANSACTIONAL,
    collation_changes,
    exact_name,
)
from airflow_provider_cdc.targets.database.progress.column_upgrades import build_column_additions, list_missing_columns

log = logging.getLogger(__name__)

ALL = "*"
TEXT = sa.Text().with_variant(sa.UnicodeText(), "mssql")
"""Texts of any length in all characters, which those of SQL Server do not have by themselves."""
_NAME = 255
_LOGS, _IDENTITY = ("changelog", "writer"), 64
"""Columns for whose the batch is, which tables of earlier releases do not have."""


class MarkersChanged(Exception):
    """The tables are not where they were: read the markers again."""


@dataclass(frozen=True, slots=True)
class DatabaseMarkers:
    """The last batches of the tables of a connector.

    :param batch: that all tables have, but those in ``behind``; 0 if none was applied
    :param behind: topic → the last batch of its table
    :param logs: topic, or :data:`ALL` → identity of the change log that this batch is of, and the run that has written it; both empty if it is not known
    """

    batch: int = 0
    behind: dict[str, int] = field(default_factory=dict)
    logs: dict[str, tuple[str, str]] = field(default_factory=dict)

    def as_far_as(self, other: DatabaseMarkers) -> bool:
        """Check whether they are at the same batch, and the same tables are behind it."""
        return self.batch == other.batch and self.behind.keys() == other.behind.keys()


class MarkerTable:
    """The markers of one connector.

    :param name: of the table
    :param sink: distinguishes several sinks of the connector
    :ivar changelog: identity of the change log whose batches are applied
    """

    def __init__(self, name: str, connector: str, sink: str = "", schema: str | None = None) -> None:
        self.of, self._held = {"connector": connector, "sink": sink or ALL}, ""
        self._merged = False
        self.changelog, self._has_logs = "", False
        self._table = sa.Table(
            name,
            sa.MetaData(),
            sa.Column("connector", exact_name(_NAME), primary_key=True),
            sa.Column("sink", exact_name(100), primary_key=True),
            sa.Column("topic", exact_name(_NAME), primary_key=True),
            sa.Column("batch", sa.BigInteger, nullable=False),
            sa.Column("error", TEXT),
            sa.Column("changed_at", sa.String(32), nullable=False),
            *[sa.Column(name, sa.String(_IDENTITY)) for name in _LOGS],
            schema=schema,
            quote=True,
            **TRANSACTIONAL,
        )

    def create_if_missing(self, connection: sa.Connection) -> None:
        """Make the table and the connector's row, if they are not there. Another run may do the same now: then the database refuses one of both.

        :raises TargetError: the table is of an earlier version, and the account may not change it
        """
        self._table.create(connection, checkfirst=True)
        self._upgrade(connection)
        if connection.execute(sa.select(self._table.c.topic).where(self._row(ALL))).first() is None:
            connection.execute(
                self._table.insert().values(**self.of, topic=ALL, batch=0, changed_at=_now(), changelog=self.changelog)
            )

    def _upgrade(self, connection: sa.Connection) -> None:
        collations = collation_changes(connection, self._table)
        statements = [*collations, *build_column_additions(connection, self._table, _LOGS)]
        try:
            for statement in statements:
                connection.exec_driver_sql(statement, execution_options={"no_parameters": True})
        except sa.exc.DBAPIError as e:
            if e.connection_invalidated:
                raise
            raise TargetError(
                f"The table {self._table.name} has the form of an earlier version and cannot be altered: {e.orig}",
                safe="No other table was changed.",
                remedy=f"run {'; '.join(statements)}; or grant the account ALTER on this table; then run the apply again",
            ) from e
        self._merged |= bool(collations)

    def split_merged_markers(self, connection: sa.Connection, topics: Collection[str]) -> None:
        """Undo that an earlier version had one row for names that differ in their case only: topics that shared one are all behind.

        :param topics: of the tables that are there
        """
        if not self._merged:
            return
        found = self.read(connection)
        behind, self.changelog = found.behind, found.logs.get(ALL, ("", ""))[0]  # what is copied is of the same log
        shared = {
            topic: batch
            for known, batch in behind.items()
            for topic in topics
            if topic not in behind and topic.lower() == known.lower()
        }
        for topic, batch in shared.items():
            log.warning(
                "The table of %s is treated as being at batch %d, the batch of a table whose name differs only in case.",
                topic,
                batch,
            )
            self.store_lagging_table(
                connection, topic, batch, "an earlier version stored one marker for this topic and another one"
            )
        columns, mine = self._table.c, self.of["connector"]
        same = sa.func.lower(columns.connector) == mine.lower()
        for other in connection.scalars(sa.select(columns.connector).where(same, columns.connector != mine).distinct()):
            log.warning(
                "An earlier version stored one marker for the connectors %s and %s: verify the tables of both "
                "(`airflow cdc verify`), and rebuild the tables that differ.",
                mine,
                other,
            )
        self._merged = False

    def is_created(self, connection: sa.Connection) -> bool:
        """Check whether anything was applied here."""
        return sa.inspect(connection).has_table(self._table.name, schema=self._table.schema)

    def read(self, connection: sa.Connection) -> DatabaseMarkers:
        """Read the markers now."""
        columns = self._table.c
        self._has_logs = self._has_logs or not list_missing_columns(connection, self._table, _LOGS)
        known = [columns[name] for name in _LOGS if self._has_logs]
        rows = connection.execute(sa.select(columns.topic, columns.batch, *known).where(self._mine())).all()
        found = {row.topic: int(row.batch) for row in rows}
        logs = {row.topic: (row.changelog or "", row.writer or "") if known else ("", "") for row in rows}
        return DatabaseMarkers(found.pop(ALL, 0), found, logs)

    def lock_and_read(self, connection: sa.Connection) -> DatabaseMarkers:
        """Begin a transaction that writes: wait for other runs, and have them wait until it ends; the markers then."""
        self._held = uuid4().hex
        connection.execute(self._table.update().where(self._row(ALL)).values(changed_at=self._held))
        return self.read(connection)

    def write(self, connection: sa.Connection, batch: int, writer: str | None = None) -> None:
        """End it: all tables have a batch now, but those that are behind.

        :param writer: the run that has written it; if not given, the batch is the one that they had
        :raises Overtaken: the database has undone what was done since :meth:`lock_and_read`, as after a deadlock
        """
        mine = self._row(ALL) & (self._table.c.changed_at == self._held)
        log = {} if writer is None else {"changelog": self.changelog, "writer": writer}
        changed = connection.execute(self._table.update().where(mine).values(batch=batch, changed_at=_now(), **log))
        if changed.rowcount != 1:
            raise MarkersChanged

    def _row(self, topic: str) -> sa.ColumnElement[bool]:
        return self._mine() & (self._table.c.topic == topic)

    def _mine(self) -> sa.ColumnElement[bool]:
        return sa.and_(*(self._table.c[name] == value for name, value in self.of.items()))

    def store_lagging_table(
        self, connection: sa.Connection, topic: str, batch: int, error: str, writer: str = ""
    ) -> None:
        """Let the table of a topic stay at a batch while the others continue.

        :param writer: the run that has written it; empty if that is not known
        """
        values = {
            "batch": batch,
            "error": error[:4000],
            "changed_at": _now(),
            "changelog": self.changelog,
            "writer": writer,
        }
        if connection.execute(self._table.update().where(self._row(topic)).values(**values)).rowcount == 0:
            connection.execute(self._table.insert().values(**self.of, topic=topic, **values))

    def go_on(self, connection: sa.Connection, topic: str) -> None:
        """Record that the table of a topic is where the others are."""
        connection.execute(self._table.delete().where(self._row(topic)))

    def build_delete_statement(self, engine: sa.Engine) -> str:
        """Build the statement by which a person has the sink forget what its tables have; for messages."""
        found = self._table.delete().where(self._mine())
        text = str(found.compile(engine, compile_kwargs={"literal_binds": True})).replace("\n", "")
        return text.replace("%%", "%") if engine.dialect.paramstyle in ("format", "pyformat") else text


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
