"""Metrics of the binlog reader, under the documented names (Debezium MySQL connector, "Monitoring").

The stream updates them once per block of transactions; :meth:`MySqlSource.collect_stream_metrics` returns them. A lost connection and a malformed
transaction are counted and end the run with an error. So a run that succeeds has counted only those that did no harm.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_cdc.core.model.run_metrics import Value
from airflow_provider_cdc.sources.mysql.position import MySqlPosition


@dataclass(slots=True)
class LogMetrics:
    """Counters of one source, updated by its streams.

    DDL statements count neither as committed nor as rolled back; an XA transaction counts when it is committed or rolled back.

    :ivar read: position up to which the log was read
    :ivar large: transactions larger than the buffer, of which a part was delivered before their end was read
    :ivar not_well_formed: transactions without BEGIN, or without COMMIT or ROLLBACK
    :ivar event: server id, file and offset of the last delivered event
    :ivar locked: whether a snapshot holds the global read lock or locks on its tables
    """

    read: MySqlPosition | None = None
    committed: int = 0
    rolled_back: int = 0
    large: int = 0
    not_well_formed: int = 0
    disconnects: int = 0
    last_transaction: str = ""
    event: dict[str, str] | None = None
    locked: bool = False

    def transactions_ended(self, count: int, rolled_back: int, *, large: bool, last: str) -> None:
        """Transactions were delivered.

        :param count: number of transactions, including ``rolled_back``
        :param large: a part of the first one was delivered before
        :param last: id of the last one
        """
        self.committed += count - rolled_back
        self.rolled_back += rolled_back
        self.large += large
        self.last_transaction = last

    def statement_ended(self, gtid: object) -> None:
        """Record that a statement that is a separate transaction (DDL) was delivered.

        :param gtid: its GTID, if the server has GTIDs
        """
        self.last_transaction = str(gtid or self.last_transaction)

    def count_malformed(self) -> None:
        """Count a malformed transaction."""
        self.not_well_formed += 1

    def count_disconnect(self) -> None:
        """Count a lost connection to the server."""
        self.disconnects += 1

    def read_up_to(self, position: MySqlPosition) -> None:
        """Record that the log was read up to this position."""
        self.read = position

    def set_locked(self, held: bool) -> None:
        """Record that a snapshot has taken or released its locks."""
        self.locked = held

    def event_delivered(self, server_id: int, file: str, pos: int) -> None:
        """Record that an event was delivered.

        :param pos: offset at which it begins
        """
        self.event = {"server_id": str(server_id), "file": file, "pos": str(pos)}

    def build_metrics(self, *, gtids: bool) -> dict[str, Value]:
        """Return the metrics by their documented names.

        :param gtids: whether the server has GTIDs
        """
        read = self.read or MySqlPosition("", 0)
        return {
            "BinlogFilename": read.file,
            "BinlogPosition": read.pos,
            "IsGtidModeEnabled": gtids,
            "GtidSet": read.gtids,
            "NumberOfCommittedTransactions": self.committed,
            "NumberOfRolledBackTransactions": self.rolled_back,
            "NumberOfNotWellFormedTransactions": self.not_well_formed,
            "NumberOfLargeTransactions": self.large,
            "NumberOfDisconnects": self.disconnects,
            "LastTransactionId": self.last_transaction,
            "SourceEventPosition": self.event or {},
            "HoldingGlobalLock": self.locked,
        }
