"""Ownership of the rows of a table in a database. Two topics may come to one name: dots and underscores, letters of either case, names without their database.

A table in the target database says it, so that connectors know of each other, and runs of the runs before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import sqlalchemy as sa

from airflow_provider_cdc.core.errors import ConfigError, TargetError
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig
from airflow_provider_cdc.targets.database.progress.binary_collation import TRANSACTIONAL, exact_name
from airflow_provider_cdc.targets.database.progress.marker_table import TEXT

CLAIMS: Final = "cdc_tables"
"""The name of that table."""
_OURS: Final = re.compile(r"cdc_(stage|verify)(_.*)?", re.IGNORECASE)
"""Names of tables that exist while rows are written or compared."""
_DENIED: Final = re.compile(r"denied|privilege|permission|authori", re.IGNORECASE)
"""Words in the errors of databases if an account lacks a right."""
_LONGEST: Final = 258
"""Characters of a schema and a table. With the two other columns of the key, it is the longest that InnoDB has."""
_AT_ONCE: Final = 200


@dataclass(frozen=True, slots=True)
class TableClaim:
    """A topic that writes to a table.

    :param table: the name by which the database distinguishes it from others
    :param source: the topic's table at the source
    """

    table: str
    connector: str
    topic: str
    source: str = ""


class TableClaims:
    """The claims of one connector.

    :ivar refused: topic → why its table is not its own
    """

    def __init__(self, config: DatabaseTargetConfig, connector: str) -> None:
        self._config, self._connector = config, connector
        self.refused, self._claimed = dict[str, ConfigError](), dict[str, str]()
        name = exact_name(255)
        self._table = sa.Table(
            CLAIMS,
            sa.MetaData(),
            sa.Column("table_name", exact_name(_LONGEST, letters=True), primary_key=True),
            sa.Column("connector", name, primary_key=True),
            sa.Column("topic", name, primary_key=True),
            sa.Column("source_table", TEXT),
            sa.Column("claimed_at", sa.String(32), nullable=False),
            quote=True,
            **TRANSACTIONAL,
        )

    def create_if_missing(self, connection: sa.Connection) -> None:
        """Make the table, if it is not there.

        :raises TargetError: the account may not make it
        """
        if sa.inspect(connection).has_table(self._table.name):
            return
        try:
            self._table.create(connection, checkfirst=True)
        except sa.exc.DBAPIError as e:
            if not _DENIED.search(str(e.orig)):
                raise  # another run may have been faster
            statement = str(sa.schema.CreateTable(self._table).compile(dialect=connection.dialect))
            raise TargetError(
                f"The table {CLAIMS}, which records the topic of each table, cannot be created: {e.orig}",
                safe="No table was changed.",
                remedy=f"grant the account the right to create tables, or run {' '.join(statement.split())}; then run the apply again",
            ) from e

    def claim_tables(
        self, connection: sa.Connection, claims: Mapping[str, TableClaim], names: Mapping[str, str]
    ) -> None:
        """Claim the tables of topics. Tables that cannot be claimed are in :attr:`refused`. Another run may do the same now: then the database refuses one of both.

        :param claims: topic → its claim
        :param names: topic → its table, for people
        """
        new = {topic: claim for topic, claim in sorted(claims.items()) if not self.is_claimed(claim)}
        owners = self._owners(connection, {claim.table for claim in new.values()})
        for topic, claim in new.items():
            of_table = owners.setdefault(claim.table, [])
            others = [owner for owner in of_table if (owner.connector, owner.topic) != (claim.connector, topic)]
            self.refused.pop(topic, None)
            if why := self._ours(topic, names[topic]):
                self.refused[topic] = why
            elif len(others) == len(of_table) > 0 and not self._config.collection_name_shared:
                self.refused[topic] = self._not_its_own(connection, topic, names[topic], others[0])
            else:
                if len(others) == len(of_table):
                    self._insert(connection, [claim])
                    of_table.append(claim)
                self._claimed[topic] = claim.table

    def is_claimed(self, claim: TableClaim) -> bool:
        """Check whether a claim was made before."""
        return self._claimed.get(claim.topic) == claim.table

    def find_other_topic(self, connection: sa.Connection, claim: TableClaim) -> str | None:
        """Another topic whose rows a table has as well (``collection.name.shared``)."""
        claims = self._owners(connection, {claim.table}).get(claim.table, [])
        others = (owner.topic for owner in claims if (owner.connector, owner.topic) != (claim.connector, claim.topic))
        return next(others, None)

    def move_claim(self, connection: sa.Connection, topic: str, table: str, source: str) -> None:
        """Move the claim to the new topic, as a table has got another name at the source, and its rows stay where they are.

        :param source: the table's name before
        """
        columns = self._table.c
        mine = (columns.connector == self._connector) & (columns.table_name == table) & (columns.source_table == source)
        connection.execute(self._table.delete().where(mine & (columns.topic != topic)))

    def _owners(self, connection: sa.Connection, tables: set[str]) -> dict[str, list[TableClaim]]:
        owners, names, columns = dict[str, list[TableClaim]](), sorted(tables), self._table.c
        query = sa.select(columns.table_name, columns.connector, columns.topic, columns.source_table)
        for at in range(0, len(names), _AT_ONCE):
            some = query.where(columns.table_name.in_(names[at : at + _AT_ONCE]))
            for row in connection.execute(some.order_by(columns.claimed_at)):
                owners.setdefault(row.table_name, []).append(TableClaim(*row))
        return owners

    def _insert(self, connection: sa.Connection, claims: list[TableClaim]) -> None:
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        rows = [
            {
                "table_name": claim.table, "connector": claim.connector, "topic": claim.topic, "source_table": claim.source or None, "claimed_at": now,
            }
            for claim in claims
        ]  # fmt: skip
        if rows:
            connection.execute(self._table.insert(), rows)

    # -- rejected claims ----------------------------------------------------------------------------------------------

    def _ours(self, topic: str, name: str) -> ConfigError | None:
        plain, config = name.rpartition(".")[2].lower(), self._config
        if plain not in {CLAIMS, config.marker_table.lower(), config.errors_table.lower()} and not _OURS.fullmatch(
            plain
        ):
            return None
        return ConfigError(
            f"The table of {topic} would have the name {name}, which the sink reserves for its own tables.",
            where=f"collection.name.format={config.name_format}",
            safe="No row of the topic was written; other tables continue.",
            remedy="give tables other names with collection.name.format, or leave the topic out with topics.regex",
        )

    def _not_its_own(self, connection: sa.Connection, topic: str, name: str, other: TableClaim) -> ConfigError:
        whose = "" if other.connector == self._connector else f" of the connector {other.connector}"
        columns = self._table.c
        forgotten = self._table.delete().where(columns.table_name == other.table, columns.topic == other.topic)
        statement = str(forgotten.compile(connection, compile_kwargs={"literal_binds": True})).replace("\n", "")
        if connection.dialect.paramstyle in ("format", "pyformat"):
            statement = statement.replace("%%", "%")
        return ConfigError(
            f"The topics {other.topic}{whose} and {topic} would both use the table {name}, which would mix their rows.",
            where=f"collection.name.format={self._config.name_format}, quote.identifiers={str(self._config.quote_identifiers).lower()}",
            safe=f"No row of {topic} was written; {other.topic} and other tables continue.",
            remedy="give each topic its own table: with collection.name.format, whose ${topic}, ${source.db} and ${source.table} name the origin of a row, "
            "with quote.identifiers=true, which keeps the case of names, or with a separate sink and topics.regex; leave one topic out with topics.regex; "
            f"set collection.name.shared=true if the topics are shards without common keys; if {other.topic} is no longer applied, run {statement}",
        )
