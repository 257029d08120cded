"""Finds signals and the watermarks of chunks in the log's rows of the signal table.

See "Sending signals to a connector", ``signal.data.collection``, of the Debezium connector documents.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.model.connector_signal import SentSignal
from airflow_provider_cdc.core.model.log_items import CREATE, DELETE, LogBlock, RowBlock
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.signals.signal_intake import SignalIntake
from airflow_provider_cdc.core.signals.signal_request_parser import WINDOW_CLOSE, WINDOW_OPEN
from airflow_provider_cdc.core.spi.store_interfaces import StateStore


@dataclass(frozen=True, slots=True)
class WatermarkRow:
    """A row of the signal table that opens or closes a window.

    :param inserted: the row was inserted; otherwise it was deleted
    """

    id: str
    inserted: bool


class SignalTableReader:
    """Reads the rows of the signal table.

    :param connector: the connector's name
    :param table: the signal table; ``None``: there is none
    :param signal_of: see :meth:`~airflow_provider_cdc.core.spi.source.Source.signal_of`
    """

    def __init__(
        self,
        connector: str,
        config: ConnectorConfig,
        store: StateStore,
        table: TableId | None,
        signal_of: Callable[[Mapping[str, Any]], tuple[Any, Any, Any]],
    ) -> None:
        self._table, self._signal_of = table, signal_of
        self._enabled = "source" in config.signal_enabled_channels
        self._intake = SignalIntake(connector, "source", config, store)

    @property
    def has_unrecorded_signals(self) -> bool:
        """True if signals were found that are not recorded yet."""
        return self._intake.has_unrecorded_signals

    def read_block(self, block: LogBlock) -> Iterator[WatermarkRow]:
        """Find the signals in the rows of a block. Returns the block's watermarks."""
        if self._table is None:
            return
        for rows in block.rows:
            if rows.table.id == self._table:
                for id_, type_, data, op, origin in self._signals(rows):
                    if type_ in (WINDOW_OPEN, WINDOW_CLOSE):
                        yield WatermarkRow(id_, inserted=op == CREATE)
                    elif op == CREATE and self._enabled:
                        self._intake.add([SentSignal(id_, type_, data, "source", origin)])

    def rollback(self) -> None:
        """Discard the signals of the open transaction, which was rolled back."""
        self._intake.discard()

    def record_signals(self) -> None:
        """Record the signals whose rows were found; between transactions, before the offset moves behind the rows."""
        self._intake.record()

    def _signals(self, rows: RowBlock) -> list[tuple[str, str, str | None, int, str]]:
        """Id, type, data, operation and origin of the rows of a signal table."""
        signals = []
        after = rows.after.to_pylist() if rows.after is not None else [None] * len(rows)
        before = rows.before.to_pylist() if rows.before is not None else [None] * len(rows)
        source = {name: column.to_pylist() for name, column in rows.source.items()}
        for i, op in enumerate(rows.op.tolist()):
            row = before[i] if op == DELETE else after[i]
            if op not in (CREATE, DELETE) or row is None:
                continue
            id_, type_, data = values = [None if v is None else _text(v) for v in self._signal_of(row)]
            identity = {name: column[i] for name, column in source.items() if column[i] is not None and name != "query"}
            # a log that was reset numbers its positions from the beginning again: they alone do not tell two rows apart
            identity |= {
                "made_us": int(rows.ts_us[i]),
                "holds": hashlib.sha256(json.dumps(values).encode()).hexdigest()[:32],
            }
            origin = "source:" + json.dumps(identity, sort_keys=True, default=str)
            signals.append((id_ or "", (type_ or "").strip(), data, op, origin))
        return signals


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
