"""Metrics of the reader of the binary log, under the documented names (Debezium MySQL connector, "Monitoring").

Whoever does the work counts, once for each block of transactions; :meth:`MySqlSource.metrics` shows it. A lost connection to the log
and a transaction without its frame are counted and end the run with an error, so that the result of a run that ends well has them
only where they did no harm.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_cdc.core.model.metrics import Value
from airflow_provider_cdc.sources.mysql.position import MySqlPosition


@dataclass(slots=True)
class LogMetrics:
    """Counters of one source; its streams add to them, one after the other.

    Statements that are transactions of their own (DDL) are neither committed nor rolled back ones; a prepared XA transaction counts
    when it ends.

    :ivar read: up to where the log was read
    :ivar large: transactions of which a part was handed on before their end was seen
    :ivar not_well_formed: transactions that begin or end otherwise than with a frame of BEGIN and COMMIT or ROLLBACK
    :ivar event: coordinates of the last event that was handed on, or that belongs to a transaction that was
    :ivar locked: a snapshot holds the global read lock, or locks on its tables
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
        """Transactions were handed on.

        :param count: of all of them
        :param large: parts of the first one had been handed on before
        :param last: id of the last one
        """
        self.committed += count - rolled_back
        self.rolled_back += rolled_back
        self.large += large
        self.last_transaction = last

    def statement_ended(self, gtid: object) -> None:
        """A statement was handed on that is a transaction of its own.

        :param gtid: its GTID, if the server has them
        """
        self.last_transaction = str(gtid or self.last_transaction)

    def malformed(self) -> None:
        """A transaction begins or ends otherwise than transactions do."""
        self.not_well_formed += 1

    def disconnected(self) -> None:
        """A connection to the server was lost."""
        self.disconnects += 1

    def read_up_to(self, position: MySqlPosition) -> None:
        """The log was read up to here."""
        self.read = position

    def set_locked(self, held: bool) -> None:
        """A snapshot holds locks now, or does not hold them any more."""
        self.locked = held

    def event_delivered(self, server_id: int, file: str, pos: int) -> None:
        """An event was taken.

        :param pos: where it begins
        """
        self.event = {"server_id": str(server_id), "file": file, "pos": str(pos)}

    def document(self, *, gtids: bool) -> dict[str, Value]:
        """By name.

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
