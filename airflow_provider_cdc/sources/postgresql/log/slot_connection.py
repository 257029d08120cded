"""Opens the stream of the slot, and explains why a slot cannot be read."""

from __future__ import annotations

import contextlib
import time
from typing import Final

from airflow_provider_cdc.core.errors import PositionLost, PrerequisiteError, SourceBusy
from airflow_provider_cdc.sources.postgresql.config import PostgresConfig
from airflow_provider_cdc.sources.postgresql.connect import (
    PostgresServer,
    connect,
    raise_cdc_errors,
    replication_login,
    sqlstate_of,
)
from airflow_provider_cdc.sources.postgresql.position import PostgresPosition, format_lsn
from airflow_provider_cdc.sources.postgresql.protocol.replication_connection import ReplicationConnection
from airflow_provider_cdc.sources.postgresql.protocol.server_messages import ReplicationError
from airflow_provider_cdc.sources.postgresql.slot_state import AGAIN, SAFE, check_slot, read_slot

_IN_USE: Final = "55006"
_NOT_THERE: Final = "42704"
_FIRST_WAIT_S: Final = 0.05


class SlotConnector:
    """Opens the stream of the connector's slot."""

    def __init__(self, config: PostgresConfig, server: PostgresServer) -> None:
        self._config, self._server = config, server
        quoted = config.publication_name.replace('"', '""')
        self._options = {"proto_version": "1", "publication_names": f'"{quoted}"'}
        if server.major >= 14:
            self._options["binary"] = "true"

    def open_stream(self, start: int, confirmed: int) -> ReplicationConnection:
        """Open the stream. Waits while another reader uses the slot.

        :param start: LSN from which on transactions are wanted
        :param confirmed: LSN up to which everything is durable
        :raises PositionLost: the slot does not have the position any more
        :raises SourceBusy: another reader uses the slot
        :raises SourceUnavailable: no server answers
        """
        config = self._config
        self._check_slot(start)
        until = time.monotonic() + config.slot_max_retries * config.slot_retry_delay_ms / 1000
        wait = _FIRST_WAIT_S
        while True:
            try:
                with raise_cdc_errors(config, f"slot {config.slot_name}"):
                    login = replication_login(config)
                    return ReplicationConnection(login, config.slot_name, start, self._options, confirmed=confirmed)
            except Exception as e:
                if sqlstate_of(e.__cause__) != _IN_USE:
                    raise self.explain_refusal(e.__cause__, start) or e from e.__cause__
                left = until - time.monotonic()
                if left <= 0:
                    raise self._busy(e) from e.__cause__
            time.sleep(min(wait, left, max(config.slot_retry_delay_ms / 1000, _FIRST_WAIT_S)))
            wait *= 2

    def explain_refusal(self, e: BaseException | None, start: int) -> PositionLost | PrerequisiteError | None:
        """Return the error for a stream that the server does not continue, if it would not continue it later either."""
        if not isinstance(e, ReplicationError):
            return None
        if e.state == _NOT_THERE and "publication" in e.message:
            return PrerequisiteError(
                f"The publication {self._config.publication_name} does not exist at this position of the log: {e.message}.",
                where=format_lsn(start),
                safe="Everything before this position is captured.",
                remedy="create the publication, then snapshot the tables again with snapshot.mode=always for one run: a slot reads the log with the "
                "catalog of that time, in which the publication must exist already",
            )
        if e.state == _NOT_THERE and "replication slot" in e.message:
            return self._lost(f"it does not exist: {e.message}", start)
        if (e.state == "55000" and "slot" in e.message) or "requested WAL segment" in e.message:
            return self._lost(str(e), start)
        return None

    def _check_slot(self, start: int) -> None:
        config = self._config
        with raise_cdc_errors(config), connect(config, initial=False) as connection:
            slot = read_slot(connection, config)
        check_slot(config, self._server, slot, PostgresPosition(start))

    def _lost(self, why: str, start: int) -> PositionLost:
        return PositionLost(
            f"The slot {self._config.slot_name} does not have the changes since the last run any more: {why}.",
            where=f"the offset is at {format_lsn(start)}",
            safe=SAFE,
            remedy=AGAIN,
        )

    def _busy(self, e: BaseException) -> SourceBusy:
        pid = None
        with contextlib.suppress(Exception), connect(self._config, initial=False) as connection:
            slot = read_slot(connection, self._config)
            pid = slot.active_pid if slot is not None else None
        return SourceBusy(
            f"Another reader uses the slot {self._config.slot_name}"
            + (f": the server's process {pid}." if pid else "."),
            where=f"{self._config.database_hostname}:{self._config.database_port}",
            safe="Nothing was read; the offset is untouched.",
            remedy=f"find it by SELECT * FROM pg_stat_activity WHERE pid = {pid or '…'}. If it is a run of this connector that was killed, "
            f"end it: SELECT pg_terminate_backend({pid or '…'}). Each connector needs a separate slot (slot.name)",
        )
