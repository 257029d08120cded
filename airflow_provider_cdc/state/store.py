"""The state store: leases, offsets, schema history and batches over SQLAlchemy.

Works on PostgreSQL, MySQL and SQLite, the databases that Airflow itself works on. Every write that matters is one short
transaction that names the lease's epoch and the version it expects.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NoReturn

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError, OperationalError
from tenacity import (
    RetryCallState,
    Retrying,
    before_sleep_log,
    retry_if_exception,
    stop_after_delay,
    wait_random_exponential,
)

from airflow_provider_cdc.core.errors import CommitConflict, LeaseHeld, LeaseLost, StateError, StateUnavailable
from airflow_provider_cdc.core.manifest import Manifest, SchemaChangeRecord
from airflow_provider_cdc.core.position import Offset
from airflow_provider_cdc.core.seams import Lease, StoredOffset
from airflow_provider_cdc.state.models import (
    Base,
    BatchRow,
    ConnectorRow,
    LeaseRow,
    OffsetHistoryRow,
    OffsetRow,
    SchemaHistoryRow,
)

log = logging.getLogger(__name__)

_NOW_MS = {
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    "postgresql": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
    "mysql": "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)",
    "mariadb": "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)",
}
"""The database's own clock: leases must not depend on how well the workers' clocks agree."""


class StateStore:
    """See :class:`airflow_provider_cdc.core.seams.StateStore`.

        >>> store = StateStore("postgresql+psycopg://airflow:***@db/airflow")
        >>> store.load("shop").offset.seq
        1204

    :param url: SQLAlchemy URL
    :param schema: database schema of the tables, as Airflow's ``[database] sql_alchemy_schema``
    :param lease_ttl_s: how long a lease lives without being renewed; a run that dies frees the connector after this time
    :param patience_s: how long an unreachable database is tried again
    :raises StateError: the URL cannot be used
    """

    def __init__(
        self, url: str, *, schema: str | None = None, lease_ttl_s: float = 30.0, patience_s: float = 60.0
    ) -> None:
        try:
            parsed = sa.make_url(url)
            if parsed.get_backend_name() not in _NOW_MS:
                raise NoSuchModuleError(parsed.get_backend_name())
            options: dict[str, Any] = {"schema_translate_map": {None: schema}} if schema else {}
            self._engine = sa.create_engine(parsed, pool_pre_ping=True, execution_options=options)
        except (ArgumentError, NoSuchModuleError, ImportError, ValueError) as e:
            # the URL may hold a password: its text is not repeated
            raise StateError(
                f"The state database's URL cannot be used ({type(e).__name__}).",
                remedy="give a SQLAlchemy URL of PostgreSQL, MySQL or SQLite, for example postgresql+psycopg://user:password@host/airflow",
            ) from None
        if self._engine.dialect.name == "sqlite":
            sa.event.listen(self._engine, "connect", _sqlite_connect)
            sa.event.listen(self._engine, "begin", _sqlite_begin)
        elif self._engine.dialect.name == "postgresql":
            sa.event.listen(self._engine, "connect", _postgresql_connect(lease_ttl_s))
        self._now = sa.text(f"SELECT {_NOW_MS[self._engine.dialect.name]}")
        self._ttl_ms = int(lease_ttl_s * 1000)
        self._patience_s = patience_s

    def create_tables(self) -> None:
        """Create the tables where they are missing. Airflow deployments use ``airflow db migrate`` instead."""
        Base.metadata.create_all(self._engine)

    def verify(self) -> None:
        """:raises StateError: the tables are not there"""
        for attempt in self._patiently():
            with attempt:
                names = set(sa.inspect(self._engine).get_table_names(schema=self._schema()))
        if missing := sorted(set(Base.metadata.tables) - names):
            raise StateError(
                f"The state tables are missing: {', '.join(missing)}.",
                where=self._engine.url.render_as_string(hide_password=True),
                remedy="airflow db migrate",
            )

    def close(self) -> None:
        self._engine.dispose()

    # -- leases -------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def lease(self, connector: str, owner: str, *, wait_s: float) -> Iterator[Lease]:
        lease = self._acquire(connector, owner, wait_s)
        stop = threading.Event()
        beat = threading.Thread(target=self._keep_alive, args=(lease, stop), name="cdc-lease", daemon=True)
        beat.start()
        try:
            yield lease
        finally:
            stop.set()
            beat.join()
            with contextlib.suppress(OperationalError):  # it expires by itself
                self._release(lease)

    def confirm(self, lease: Lease) -> None:
        for attempt in self._patiently():
            with attempt, self._write() as c:
                self._require(c, lease)

    def _acquire(self, connector: str, owner: str, wait_s: float) -> Lease:
        deadline = time.monotonic() + wait_s
        told = False
        while True:
            for attempt in self._patiently():
                with attempt:
                    epoch, holder, left_s = self._try_acquire(connector, owner)
            if epoch is not None:
                return Lease(connector, owner, epoch)
            if time.monotonic() >= deadline:
                raise LeaseHeld(
                    f"Connector {connector} is being captured by {holder}.",
                    safe="This run read and wrote nothing.",
                    remedy=f"let it finish; if it is dead, its lease ends by itself in {left_s:.0f} s",
                )
            if not told:
                log.info("Waiting for the lease of %s, held by %s.", connector, holder)
                told = True
            time.sleep(min(max(left_s, 0.05), 1.0))

    def _try_acquire(self, connector: str, owner: str) -> tuple[int | None, str | None, float]:
        """Epoch when the lease was got; otherwise its holder and the seconds it has left."""
        try:
            with self._write() as c:
                now = c.scalar(self._now)
                row = c.execute(
                    sa.select(LeaseRow.owner, LeaseRow.epoch, LeaseRow.expires_ms)
                    .where(LeaseRow.connector == connector)
                    .with_for_update()
                ).one_or_none()
                values = {"owner": owner, "expires_ms": now + self._ttl_ms}
                if row is None:
                    c.execute(sa.insert(LeaseRow).values(connector=connector, epoch=1, **values))
                    return 1, owner, 0.0
                if row.expires_ms > now:
                    return None, row.owner, (row.expires_ms - now) / 1000
                statement = sa.update(LeaseRow).where(LeaseRow.connector == connector)
                c.execute(statement.values(epoch=row.epoch + 1, **values))
                return row.epoch + 1, owner, 0.0
        except IntegrityError:  # another run inserted the row in the same moment
            return None, "another run", 0.0

    def _keep_alive(self, lease: Lease, stop: threading.Event) -> None:
        while not stop.wait(self._ttl_ms / 3000):
            try:
                with self._write() as c:
                    expires = c.scalar(self._now) + self._ttl_ms
                    mine = (LeaseRow.connector == lease.connector) & (LeaseRow.epoch == lease.epoch)
                    if not c.execute(sa.update(LeaseRow).where(mine).values(expires_ms=expires)).rowcount:
                        log.warning(
                            "The lease of %s was taken over; this run can commit nothing more.", lease.connector
                        )
                        return
            except OperationalError as e:
                log.warning("The lease of %s could not be renewed, trying again: %s", lease.connector, e.orig)

    def _release(self, lease: Lease) -> None:
        with self._write() as c:
            mine = (LeaseRow.connector == lease.connector) & (LeaseRow.epoch == lease.epoch)
            c.execute(sa.update(LeaseRow).where(mine).values(expires_ms=0, owner=None))

    def _require(self, c: sa.Connection, lease: Lease) -> None:
        """Lock the lease's row and make sure that nobody has taken over."""
        row = c.execute(
            sa.select(LeaseRow.epoch, LeaseRow.owner).where(LeaseRow.connector == lease.connector).with_for_update()
        ).one_or_none()
        if row is None or row.epoch != lease.epoch:
            raise LeaseLost(
                f"Connector {lease.connector} was taken over by {row.owner if row else 'nobody'}.",
                where=f"lease epoch {lease.epoch}, now {row.epoch if row else 'none'}",
                safe="This run's unfinished batch is void; the other run captures those events.",
            )

    # -- offsets ------------------------------------------------------------------------------------------------------

    def load(self, connector: str) -> StoredOffset:
        for attempt in self._patiently():
            with attempt, self._engine.connect() as c:
                row = c.execute(
                    sa.select(OffsetRow.offset, OffsetRow.version).where(OffsetRow.connector == connector)
                ).one_or_none()
        return StoredOffset(None, 0) if row is None else StoredOffset(Offset.model_validate(row.offset), row.version)

    def commit(self, lease: Lease, expected: StoredOffset, manifest: Manifest, manifest_path: str) -> StoredOffset:
        return self._move(lease, expected, manifest.offset_after, f"batch {manifest.batch}", manifest, manifest_path)

    def advance(self, lease: Lease, expected: StoredOffset, offset: Offset) -> StoredOffset:
        return self._move(lease, expected, offset, "nothing to capture", None, "")

    def _move(
        self, lease: Lease, expected: StoredOffset, offset: Offset, reason: str, manifest: Manifest | None, path: str
    ) -> StoredOffset:
        for attempt in self._patiently():
            with attempt:
                try:
                    with self._write() as c:
                        self._require(c, lease)
                        self._set_offset(c, lease, expected.version, offset, reason, manifest)
                        if manifest is not None:
                            self._record(c, manifest, path)
                except CommitConflict:
                    # the answer to an earlier attempt may have been lost after the database had committed it
                    there = self.load(lease.connector)
                    if there.version != expected.version + 1 or there.offset != offset:
                        raise
        return StoredOffset(offset, expected.version + 1)

    def _set_offset(
        self, c: sa.Connection, lease: Lease, version: int, offset: Offset, reason: str, manifest: Manifest | None
    ) -> None:
        now, document = datetime.now(UTC), offset.document()
        values = {
            "version": version + 1, "offset": document, "epoch": lease.epoch, "seq": offset.seq, "batch": offset.batch,
            "updated_at": now,
        }  # fmt: skip
        if manifest is not None:
            values["source"] = manifest.source
        if version == 0:
            try:
                c.execute(sa.insert(OffsetRow).values(connector=lease.connector, **values))
            except IntegrityError:
                raise _conflict(lease) from None
        else:
            mine = (OffsetRow.connector == lease.connector) & (OffsetRow.version == version)
            if c.execute(sa.update(OffsetRow).where(mine).values(**values)).rowcount != 1:
                raise _conflict(lease)
        c.execute(
            sa.insert(OffsetHistoryRow).values(
                connector=lease.connector, version=version + 1, offset=document, epoch=lease.epoch, reason=reason,
                created_at=now,
            )
        )  # fmt: skip

    def _record(self, c: sa.Connection, manifest: Manifest, path: str) -> None:
        now = datetime.now(UTC)
        topics: dict[str, int] = {}
        for file in manifest.files:
            topics[file.topic] = topics.get(file.topic, 0) + file.rows
        c.execute(
            sa.insert(BatchRow).values(
                connector=manifest.connector, batch=manifest.batch, manifest=path, first_seq=manifest.first_seq,
                last_seq=manifest.last_seq, events=manifest.events, bytes=sum(f.bytes for f in manifest.files),
                topics=topics, position=manifest.offset_after.position or {}, epoch=manifest.epoch, created_at=now,
            )
        )  # fmt: skip
        for record in manifest.schema_changes:
            c.execute(
                sa.insert(SchemaHistoryRow).values(
                    connector=manifest.connector, seq=record.seq, batch=manifest.batch, created_at=now,
                    record=record.model_dump(mode="json", exclude_defaults=True),
                )
            )  # fmt: skip

    def schema_history(self, connector: str) -> Iterator[SchemaChangeRecord]:
        for attempt in self._patiently():
            with attempt, self._engine.connect() as c:
                rows = c.scalars(
                    sa.select(SchemaHistoryRow.record)
                    .where(SchemaHistoryRow.connector == connector)
                    .order_by(SchemaHistoryRow.id)
                ).all()
        return map(SchemaChangeRecord.model_validate, rows)

    # -- connectors ---------------------------------------------------------------------------------------------------

    def register(self, record: dict[str, Any]) -> None:
        """Remember what a connector is, see ``runtime.record``. Writes only what has changed."""
        key = ConnectorRow.connector == record["connector"]
        for attempt in self._patiently():
            with attempt:
                if self.connector(record["connector"]) == record:
                    return
                values = record | {"updated_at": datetime.now(UTC)}
                with self._write() as c:
                    if c.execute(sa.update(ConnectorRow).where(key).values(**values)).rowcount:
                        return
                    try:
                        with c.begin_nested():
                            c.execute(sa.insert(ConnectorRow).values(**values))
                    except IntegrityError:  # another run inserted the row in the same moment
                        c.execute(sa.update(ConnectorRow).where(key).values(**values))

    def connector(self, name: str) -> dict[str, Any] | None:
        """What :meth:`register` was told last."""
        columns = [c for c in ConnectorRow.__table__.columns if c.name != "updated_at"]
        with self._engine.connect() as c:
            row = c.execute(sa.select(*columns).where(ConnectorRow.connector == name)).one_or_none()
        return None if row is None else dict(row._mapping)

    # -- for people ---------------------------------------------------------------------------------------------------

    def connectors(self, connector: str | None = None) -> list[dict[str, Any]]:
        """Every connector, or one: what it is, its offset, and who captures it now (``owner``, for ``lease_s`` more)."""
        names = sa.union(sa.select(ConnectorRow.connector), sa.select(OffsetRow.connector)).subquery()
        statement = (
            sa.select(
                names.c.connector, ConnectorRow.source, ConnectorRow.changelog, ConnectorRow.changelog_options,
                ConnectorRow.properties, ConnectorRow.connections, OffsetRow.offset, OffsetRow.seq, OffsetRow.batch,
                OffsetRow.updated_at, LeaseRow.owner, LeaseRow.expires_ms,
            )
            .outerjoin(ConnectorRow, ConnectorRow.connector == names.c.connector)
            .outerjoin(OffsetRow, OffsetRow.connector == names.c.connector)
            .outerjoin(LeaseRow, LeaseRow.connector == names.c.connector)
            .order_by(names.c.connector)
        )  # fmt: skip
        if connector is not None:
            statement = statement.where(names.c.connector == connector)
        with self._engine.connect() as c:
            now = c.scalar(self._now)
            rows = [dict(row._mapping) for row in c.execute(statement)]
        for row in rows:
            left = (row.pop("expires_ms") or 0) - now
            row["lease_s"] = max(left, 0) / 1000
            row["owner"] = row["owner"] if left > 0 else None
        return rows

    def batches(self, connector: str, *, limit: int = 50, batch: int | None = None) -> list[dict[str, Any]]:
        """The newest batches of a connector, newest first, or one of them."""
        statement = sa.select(BatchRow.__table__).where(BatchRow.connector == connector)
        if batch is not None:
            statement = statement.where(BatchRow.batch == batch)
        with self._engine.connect() as c:
            return [dict(row._mapping) for row in c.execute(statement.order_by(BatchRow.batch.desc()).limit(limit))]

    # -- plumbing -----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _write(self) -> Iterator[sa.Connection]:
        with self._engine.connect().execution_options(cdc_write=True) as c, c.begin():
            yield c

    def _patiently(self) -> Retrying:
        """Try again while the database cannot be reached, or is locked.

        :raises StateUnavailable: patience is at its end
        """
        return Retrying(
            retry=retry_if_exception(_passes),
            stop=stop_after_delay(self._patience_s),
            wait=wait_random_exponential(multiplier=0.1, max=5),
            before_sleep=before_sleep_log(log, logging.WARNING),
            retry_error_callback=self._unavailable,
        )

    def _unavailable(self, attempts: RetryCallState) -> NoReturn:
        error = attempts.outcome.exception() if attempts.outcome is not None else None
        reason = getattr(error, "orig", None) or error
        raise StateUnavailable(
            f"The state database cannot be reached, or is locked, for {self._patience_s:g} s: {reason}",
            where=self._engine.url.render_as_string(hide_password=True),
            safe="What was committed before stays; a batch that was being committed is found by the next run.",
            remedy="see to the database, then run the capture again",
        ) from error

    def _schema(self) -> str | None:
        options = self._engine.get_execution_options()
        mapped = options.get("schema_translate_map", {}).get(None)
        return str(mapped) if mapped else None


def _conflict(lease: Lease) -> CommitConflict:
    return CommitConflict(
        f"The offset of {lease.connector} was moved by somebody else.",
        safe="Nothing was written.",
    )


def _passes(e: BaseException) -> bool:
    """Whether trying again helps: the database is away or locked, or has hung up."""
    return isinstance(e, OperationalError) or (isinstance(e, DBAPIError) and e.connection_invalidated)


def _sqlite_connect(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # SQLAlchemy's "begin" event says BEGIN, not the driver
    connection.execute("PRAGMA busy_timeout = 30000")


def _postgresql_connect(idle_s: float) -> Callable[[Any, Any], None]:
    """A run that stands still within a transaction, a frozen machine, must not lock the others out."""

    def connect(connection: Any, _record: Any) -> None:
        connection.autocommit = True  # a setting that is made in a transaction ends with it
        with connection.cursor() as cursor:
            cursor.execute(f"SET idle_in_transaction_session_timeout = {int(idle_s * 1000)}")
        connection.autocommit = False

    return connect


def _sqlite_begin(connection: sa.Connection) -> None:
    write = connection.get_execution_options().get("cdc_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
