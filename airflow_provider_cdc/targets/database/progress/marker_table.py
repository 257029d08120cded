"""The marker table, which records the batch of a connector that the tables of a database have.

It is in that database, and written in the transaction of the rows.
The row of the topic ``*`` says it of all tables; a table that is behind the others, as it could not take a change, has a separate row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import uuid4

import sqlalchemy as sa

from airflow_provider_cdc.targets.database.progress.binary_collation import TRANSACTIONAL, exact_name

ALL = "*"
TEXT = sa.Text().with_variant(sa.UnicodeText(), "mssql")
"""Texts of any length in all characters, which those of SQL Server do not have by themselves."""
_NAME = 255
_IDENTITY = 64


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
        self.owner, self._held = {"connector": connector, "sink": sink or ALL}, ""
        self.changelog = ""
        self._table = sa.Table(
            name,
            sa.MetaData(),
            sa.Column("connector", exact_name(_NAME), primary_key=True),
            sa.Column("sink", exact_name(100), primary_key=True),
            sa.Column("topic", exact_name(_NAME), primary_key=True),
            sa.Column("batch", sa.BigInteger, nullable=False),
            sa.Column("error", TEXT),
            sa.Column("changed_at", sa.String(32), nullable=False),
            sa.Column("changelog", sa.String(_IDENTITY)),
            sa.Column("writer", sa.String(_IDENTITY)),
            schema=schema,
            quote=True,
            **TRANSACTIONAL,
        )

    def create_if_missing(self, connection: sa.Connection) -> None:
        """Make the table and the connector's row, if they are not there. Another run may do the same now: then the database refuses one of both."""
        self._table.create(connection, checkfirst=True)
        if connection.execute(sa.select(self._table.c.topic).where(self._row(ALL))).first() is None:
            connection.execute(
                self._table.insert().values(
                    **self.owner, topic=ALL, batch=0, changed_at=_now(), changelog=self.changelog
                )
            )

    def is_created(self, connection: sa.Connection) -> bool:
        """Check whether anything was applied here."""
        return sa.inspect(connection).has_table(self._table.name, schema=self._table.schema)

    def read(self, connection: sa.Connection) -> DatabaseMarkers:
        """Read the markers now."""
        columns = self._table.c
        query = sa.select(columns.topic, columns.batch, columns.changelog, columns.writer).where(self._mine())
        rows = connection.execute(query).all()
        batches = {row.topic: int(row.batch) for row in rows}
        logs = {row.topic: (row.changelog or "", row.writer or "") for row in rows}
        return DatabaseMarkers(batches.pop(ALL, 0), batches, logs)

    def lock_and_read(self, connection: sa.Connection) -> DatabaseMarkers:
        """Begin a transaction that writes: wait for other runs, and have them wait until it ends; the markers then."""
        self._held = uuid4().hex
        connection.execute(self._table.update().where(self._row(ALL)).values(changed_at=self._held))
        return self.read(connection)

    def write(self, connection: sa.Connection, batch: int, writer: str | None = None) -> None:
        """End it: all tables have a batch now, but those that are behind.

        :param writer: the run that has written it; if not given, the batch is the one that they had
        :raises Overtaken: the database has rolled back the work since :meth:`lock_and_read`, as after a deadlock
        """
        mine = self._row(ALL) & (self._table.c.changed_at == self._held)
        log = {} if writer is None else {"changelog": self.changelog, "writer": writer}
        changed = connection.execute(self._table.update().where(mine).values(batch=batch, changed_at=_now(), **log))
        if changed.rowcount != 1:
            raise MarkersChanged

    def _row(self, topic: str) -> sa.ColumnElement[bool]:
        return self._mine() & (self._table.c.topic == topic)

    def _mine(self) -> sa.ColumnElement[bool]:
        return sa.and_(*(self._table.c[name] == value for name, value in self.owner.items()))

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
            connection.execute(self._table.insert().values(**self.owner, topic=topic, **values))

    def go_on(self, connection: sa.Connection, topic: str) -> None:
        """Record that the table of a topic is where the others are."""
        connection.execute(self._table.delete().where(self._row(topic)))

    def build_delete_statement(self, engine: sa.Engine) -> str:
        """Build the statement by which a person removes the sink's markers; for messages."""
        statement = self._table.delete().where(self._mine())
        text = str(statement.compile(engine, compile_kwargs={"literal_binds": True})).replace("\n", "")
        return text.replace("%%", "%") if engine.dialect.paramstyle in ("format", "pyformat") else text


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
