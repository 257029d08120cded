"""Leases: which run may write for a connector. Every write that matters names the epoch of its lease."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, OperationalError

from airflow_provider_cdc.core.errors import LeaseHeld, LeaseLost, StorageFull
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.core.spi.store_interfaces import Lease
from airflow_provider_cdc.state.models import LeaseRow
from airflow_provider_cdc.state.state_database import StateDatabase

log = logging.getLogger(__name__)


class Leases:
    """Acquires, renews, checks and releases leases.

    :param ttl_s: how long a lease lives without being renewed
    """

    def __init__(self, database: StateDatabase, ttl_s: float) -> None:
        self._database, self._ttl_ms = database, int(ttl_s * 1000)

    @contextlib.contextmanager
    def hold_lease(self, connector: str, owner: str, *, wait_s: float) -> Iterator[Lease]:
        """See :meth:`airflow_provider_cdc.core.spi.store_interfaces.StateStore.acquire_lease`."""
        lease = self.acquire(connector, owner, wait_s)
        stop = threading.Event()
        beat = threading.Thread(target=self.keep_alive, args=(lease, stop), name="cdc-lease", daemon=True)
        beat.start()
        try:
            yield lease
        finally:
            stop.set()
            beat.join()
            try:
                self.release(lease)
            except Exception as e:  # it expires by itself; the result or error of the run matters more
                log.warning("The lease of %s could not be released; it expires automatically: %s", lease.connector, e)

    def confirm_lease(self, lease: Lease) -> None:
        """Confirm that the lease is still held.

        :raises LeaseLost: another run took over
        """
        for attempt in self._database.iterate_attempts("confirm the lease"):
            with attempt, self._database.open_transaction() as c:
                self.lock_lease(c, lease)

    def acquire(self, connector: str, owner: str, wait_s: float) -> Lease:
        """Acquire a lease, without renewing it.

        :raises LeaseHeld: another run holds it, after ``wait_s`` too
        """
        deadline = time.monotonic() + wait_s
        logged = False
        while True:
            for attempt in self._database.iterate_attempts("acquire the lease"):
                with attempt:
                    epoch, holder, left_s = self._try_acquire(connector, owner)
            if epoch is not None:
                return Lease(connector, owner, epoch)
            if time.monotonic() >= deadline:
                raise LeaseHeld(
                    f"Connector {connector} is being captured by {holder}.",
                    safe="This run read and wrote nothing.",
                    remedy=f"let it finish (`{format_cdc_command('status', connector)}` shows its progress); if it is dead, its lease expires in {left_s:.0f} s",
                )
            if not logged:
                log.info("Waiting for the lease of %s, held by %s.", connector, holder)
                logged = True
            time.sleep(min(max(left_s, 0.05), 1.0))

    def _try_acquire(self, connector: str, owner: str) -> tuple[int | None, str | None, float]:
        """Return the epoch of the acquired lease; otherwise its holder and the seconds that are left."""
        try:
            with self._database.open_transaction() as c:
                now = c.scalar(self._database.now_ms)
                row = c.execute(
                    sa.select(LeaseRow.owner, LeaseRow.epoch, LeaseRow.expires_ms)
                    .where(LeaseRow.connector == connector)
                    .with_for_update()
                ).one_or_none()
                values = {"owner": owner, "expires_ms": now + self._ttl_ms, "acquired_at": datetime.now(UTC)}
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

    def keep_alive(self, lease: Lease, stop: threading.Event) -> None:
        """Renew a lease until ``stop`` is set, or until another run has taken over."""
        while not stop.wait(self._ttl_ms / 3000):
            try:
                with self._database.open_transaction() as c:
                    expires = c.scalar(self._database.now_ms) + self._ttl_ms
                    mine = (LeaseRow.connector == lease.connector) & (LeaseRow.epoch == lease.epoch)
                    if not c.execute(sa.update(LeaseRow).where(mine).values(expires_ms=expires)).rowcount:
                        log.warning("The lease of %s was taken over; this run cannot commit any more.", lease.connector)
                        return
            except Exception as e:  # any error: if this thread ended, the lease would expire unnoticed
                text = getattr(e, "orig", None) or f"{type(e).__name__}: {e}"
                is_database_error = isinstance(e, OperationalError | StorageFull)
                log.warning(
                    "The lease of %s could not be renewed, trying again: %s",
                    lease.connector,
                    text,
                    exc_info=not is_database_error,
                )

    def release(self, lease: Lease) -> None:
        """Release a lease."""
        with self._database.open_transaction() as c:
            mine = (LeaseRow.connector == lease.connector) & (LeaseRow.epoch == lease.epoch)
            c.execute(sa.update(LeaseRow).where(mine).values(expires_ms=0, owner=None))

    def lock_lease(self, c: sa.Connection, lease: Lease) -> None:
        """Lock the lease's row until the transaction ends.

        :raises LeaseLost: another run took over
        """
        row = c.execute(
            sa.select(LeaseRow.epoch, LeaseRow.owner).where(LeaseRow.connector == lease.connector).with_for_update()
        ).one_or_none()
        if row is None or row.epoch != lease.epoch:
            raise LeaseLost(
                f"Connector {lease.connector} was taken over by {row.owner if row else 'another process'}.",
                where=f"lease epoch {lease.epoch}, now {row.epoch if row else 'none'}",
                safe="The unfinished batch of this run is discarded; the other run captures its events.",
            )
