"""Moves the state of all connectors to another database.

The source stays locked until the target has committed. Then a fence in the source rejects every later use of it: a row of
``cdc_lease`` that all transactions check, see :meth:`.state_database.StateDatabase.check_fence`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from airflow_provider_cdc.core.errors import LeaseHeld, StateError
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.state.models import FENCE, Base, LeaseRow
from airflow_provider_cdc.state.state_database import StateDatabase, to_storable_text

_ROWS = 200
"""Rows that are read and written at once: an offset may have megabytes."""
_TABLES: tuple[sa.Table, ...] = tuple(Base.metadata.sorted_tables)


@dataclass(frozen=True)
class TableDigest:
    """The content of a table: the number of its rows, and the sum of their hashes, which does not depend on their order."""

    rows: int
    total: int


@dataclass(frozen=True)
class StateCopy:
    """The result of a copy.

    :ivar rows: table → number of its rows
    :ivar existed: whether an earlier copy had written them
    """

    rows: Mapping[str, int]
    existed: bool


def copy_state(source: StateDatabase, target: StateDatabase, *, moved: str) -> StateCopy:
    """Copy all rows in one transaction of the target, and fence the source.

    A copy that ended between the two commits is completed by the next call: a target that equals the source is accepted.

        >>> copy_state(StateDatabase(metadata_db), StateDatabase(own), moved="to the connection cdc_state_own")

    :param moved: the words about the new connection in errors of the source
    :raises LeaseHeld: a run is alive
    :raises StateError: the target has other rows, or the source was moved to another connection
    :raises StateUnavailable: one of the databases cannot be reached, or stays locked
    """
    moved = to_storable_text(moved, 500)
    for attempt in source.iterate_attempts("copy the state"):
        with attempt, _locked(source) as c:
            _check_source(source, c, moved)
            numbers = {table.name: _last_number(source, c, table) for table in _counted()}
            digests = {table.name: _digest(c, table) for table in _TABLES}
            existed = _fill(source, c, target, digests, numbers)
            c.execute(sa.delete(LeaseRow).where(LeaseRow.connector == FENCE))
            fence = {"connector": FENCE, "owner": moved, "epoch": 0, "expires_ms": 0, "acquired_at": datetime.now(UTC)}
            c.execute(sa.insert(LeaseRow).values(fence))
    return StateCopy({name: digest.rows for name, digest in digests.items()}, existed)


@contextmanager
def _locked(database: StateDatabase) -> Iterator[sa.Connection]:
    """Open a transaction in which no other one can write into the tables."""
    mysql = database.engine.dialect.name in ("mysql", "mariadb")
    # gaps between rows are locked at this level only
    options: dict[str, Any] = {"isolation_level": "REPEATABLE READ"} if mysql else {}
    with database.engine.connect().execution_options(cdc_write=True, **options) as c, c.begin():
        if database.engine.dialect.name == "postgresql":
            names = ", ".join(database.qualify_table(table.name) for table in _TABLES)
            c.exec_driver_sql("SET LOCAL lock_timeout = '20s'")
            c.exec_driver_sql(f"LOCK TABLE {names} IN EXCLUSIVE MODE")
        elif mysql:
            for table in _TABLES:
                c.execute(sa.select(sa.func.count()).select_from(table).with_for_update())
        yield c


def _check_source(source: StateDatabase, c: sa.Connection, moved: str) -> None:
    fence = c.scalar(sa.select(LeaseRow.owner).where(LeaseRow.connector == FENCE))
    if fence is not None and fence != moved:
        source.check_fence(c)
    now = c.scalar(source.now_ms)
    alive = c.execute(
        sa.select(LeaseRow.connector, LeaseRow.owner).where(LeaseRow.expires_ms > now).order_by(LeaseRow.connector)
    ).all()
    if alive:
        raise LeaseHeld(
            "The state cannot be copied while runs are alive: "
            + ", ".join(f"{name} by {owner}" for name, owner in alive),
            where=source.place,
            safe="Nothing was copied or changed.",
            remedy=f"pause the connectors and wait, for example `{format_cdc_command('pause', alive[0][0], wait=True)}`, then copy again",
        )


def _fill(
    source: StateDatabase,
    c: sa.Connection,
    target: StateDatabase,
    digests: Mapping[str, TableDigest],
    numbers: Mapping[str, int],
) -> bool:
    """Write the rows into an empty target; whether an earlier copy had written them."""
    _raise_numbers_of_mysql(target, numbers)
    with _locked(target) as t:
        there = {table.name: _digest(t, table) for table in _TABLES}
        existed = any(digest.rows for digest in there.values())
        if existed and there != digests:
            raise StateError(
                "The target's state tables already have rows, which differ from those of the source: "
                + ", ".join(name for name, digest in there.items() if digest != digests[name]),
                where=target.place,
                safe="Nothing was copied or changed.",
                remedy="copy to a database without connectors",
            )
        t.execute(sa.delete(LeaseRow).where(LeaseRow.connector == FENCE))
        if not existed:
            for table in _TABLES:
                for rows in _read(c, table):
                    t.execute(sa.insert(table), rows)
            if different := [table.name for table in _TABLES if _digest(t, table) != digests[table.name]]:
                raise StateError(
                    f"The target stores other rows than it received: {', '.join(different)}.",
                    where=target.place,
                    safe="The copy was rolled back; the source is unchanged.",
                    remedy="report this with the kinds and versions of both databases",
                )
        for table in _counted():
            _set_last_number(target, t, table, numbers[table.name])
    return existed


def _read(c: sa.Connection, table: sa.Table) -> Iterator[list[dict[str, Any]]]:
    statement = sa.select(table).execution_options(yield_per=_ROWS)
    if table.name == LeaseRow.__tablename__:
        statement = statement.where(table.c.connector != FENCE)
    with c.execute(statement) as result:
        for rows in result.mappings().partitions():
            yield [dict(row) for row in rows]


def _digest(c: sa.Connection, table: sa.Table) -> TableDigest:
    count = total = 0
    for rows in _read(c, table):
        for row in rows:
            text = json.dumps(row, sort_keys=True, default=_format_moment)
            total += int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
            count += 1
    return TableDigest(count, total)


def _format_moment(value: datetime) -> str:
    return value.astimezone(UTC).isoformat()


# numbers that are never given out again


def _counted() -> list[sa.Table]:
    return [table for table in _TABLES if table.autoincrement_column is not None]


def _last_number(database: StateDatabase, c: sa.Connection, table: sa.Table) -> int:
    """Return the last number that a table has given out, also if its row was deleted."""
    match database.engine.dialect.name:
        case "postgresql":
            sequence = c.scalar(
                sa.text("SELECT pg_get_serial_sequence(:t, 'id')"), {"t": database.qualify_table(table.name)}
            )
            last, called = c.execute(sa.text(f"SELECT last_value, is_called FROM {sequence}")).one()
            return int(last) if called else 0
        case "sqlite":
            counted = table.dialect_options["sqlite"]["autoincrement"]
            last = counted and c.scalar(sa.text("SELECT seq FROM sqlite_sequence WHERE name = :t"), {"t": table.name})
        case _:
            created = c.execute(sa.text(f"SHOW CREATE TABLE {table.name}")).one()[1]
            found = re.search(r"\bAUTO_INCREMENT=(\d+)", created)
            last = int(found[1]) - 1 if found else 0
    return max(int(last or 0), int(c.scalar(sa.select(sa.func.max(table.c.id))) or 0))


def _set_last_number(database: StateDatabase, c: sa.Connection, table: sa.Table, number: int) -> None:
    """Let a table count on behind a number. A statement for it would end the transaction on MySQL."""
    if not number:
        return
    if database.engine.dialect.name == "postgresql":
        name = database.qualify_table(table.name)
        c.execute(sa.text("SELECT setval(pg_get_serial_sequence(:t, 'id'), :n)"), {"t": name, "n": number})
    elif database.engine.dialect.name == "sqlite" and table.dialect_options["sqlite"]["autoincrement"]:
        c.execute(sa.text("DELETE FROM sqlite_sequence WHERE name = :t"), {"t": table.name})
        c.execute(sa.text("INSERT INTO sqlite_sequence (name, seq) VALUES (:t, :n)"), {"t": table.name, "n": number})


def _raise_numbers_of_mysql(target: StateDatabase, numbers: Mapping[str, int]) -> None:
    """Let the tables of MySQL count on behind the numbers, before the transaction that fills them. It never goes back."""
    if target.engine.dialect.name not in ("mysql", "mariadb"):
        return
    with target.engine.connect() as c:
        for table in _counted():
            if numbers[table.name] > _last_number(target, c, table):
                c.exec_driver_sql(f"ALTER TABLE {table.name} AUTO_INCREMENT = {numbers[table.name] + 1}")
