"""Notifications of snapshots, in the documented form, and the states of the signals that asked for them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from airflow_provider_cdc.core.model.connector_offset import IncrementalState, Offset, TableScan
from airflow_provider_cdc.core.model.connector_signal import Signal, SignalState
from airflow_provider_cdc.core.model.notifications import (
    BLOCKING,
    INCREMENTAL,
    INITIAL,
    SIGNAL,
    Notification,
    NotificationType,
    ScanProblem,
    TableScanStatus,
)
from airflow_provider_cdc.core.writing.batch_builder import BatchBuilder


class SnapshotNotifications:
    """Sends the notifications about tables that are read whole, in an initial snapshot or in blocking ones.

    :param names: of the tables
    :param requests: table → number of the signal that asked for it
    :param repaired: tables of which an event was set aside
    """

    def __init__(
        self,
        batcher: BatchBuilder,
        names: Sequence[str],
        requests: Mapping[str, int],
        repaired: Collection[str] = (),
    ) -> None:
        self._batcher, self._names = batcher, list(names)
        self._requests = {name: number for name, number in requests.items() if name in names}
        self._kind = BLOCKING if self._requests or {*repaired} & {*names} else INITIAL
        self._begun = False

    def notify_started(self) -> None:
        if not self._begun and self._names:
            self._notify(NotificationType.STARTED, data_collections=_names(self._names))
        self._begun = True

    def notify_tables_read(self, rows: Mapping[str, int], offset: Offset) -> None:
        """Record that some tables were read.

        :param rows: table → rows
        :param offset: the one that will be committed with them
        """
        for name, count in rows.items():
            self._notify(
                NotificationType.TABLE_SCAN_COMPLETED,
                scanned_collection=name,
                total_rows_scanned=str(count),
                status=str(TableScanStatus.SUCCEEDED if count else TableScanStatus.EMPTY),
            )
        left = [name for name in self._names if name in offset.snapshot.pending]
        if left:
            if rows:
                self._notify(
                    NotificationType.IN_PROGRESS, data_collections=_names(left), current_collection_in_progress=left[0]
                )
        elif self._names:
            self._notify(NotificationType.COMPLETED, data_collections=_names(self._names))
        self._end_signals(offset)

    def _end_signals(self, offset: Offset) -> None:
        """End the signals of which no table is pending any more, with the commit that says so."""
        for number in sorted(set(self._requests.values()) - set(offset.snapshot.request_numbers.values())):
            names = [name for name, request in self._requests.items() if request == number]
            self._batcher.end_signal(number, SignalState.DONE, f"read {_names(names)}")
            self._requests = {name: request for name, request in self._requests.items() if request != number}

    def _notify(self, type_: NotificationType, **data: str) -> None:
        queue_notification(self._batcher, self._kind, type_, **data)


def queue_notification(
    batcher: BatchBuilder, kind: str, type_: NotificationType, *, id_: str | None = None, **data: str
) -> None:
    """Send one notification with the next commit."""
    data = {"connector_name": batcher.connector} | data
    notification = Notification(aggregate_type=kind, type=str(type_), additional_data=data)
    batcher.add_notification(notification if id_ is None else notification.model_copy(update={"id": id_}))


def reject_signal(batcher: BatchBuilder, signal: Signal, reason: str, state: SignalState = SignalState.REFUSED) -> None:
    """End a signal that is not carried out, or that failed, and notify of it."""
    message = f"Signal {signal.id or signal.number} ({signal.type or 'without a type'}) from {signal.channel}: {reason}"
    batcher.end_signal(signal.number, state, reason)
    type_ = NotificationType.REFUSED if state is SignalState.REFUSED else NotificationType.FAILED
    queue_notification(
        batcher, SIGNAL, type_, id_=signal.id or str(signal.number), message=message, signal_type=signal.type,
        channel=signal.channel,
    )  # fmt: skip


def incremental_started(batcher: BatchBuilder, signal: Signal, tables: Sequence[str]) -> None:
    queue_notification(
        batcher, INCREMENTAL, NotificationType.STARTED, id_=signal.id or str(signal.number), data_collections=_names(tables)
    )  # fmt: skip


def incremental_progress(batcher: BatchBuilder, state: IncrementalState) -> None:
    """Notify of progress; with each commit while a table is being read."""
    scan = state.scans[0] if state.scans else None
    if scan is None or scan.after is None:
        return
    queue_notification(
        batcher, INCREMENTAL, NotificationType.IN_PROGRESS, id_=_id(scan), data_collections=_names(s.table for s in state.scans),
        current_collection_in_progress=scan.table, maximum_key=key_text(scan.upto), last_processed_key=key_text(scan.after),
        total_rows_scanned=str(scan.rows),
    )  # fmt: skip


def scan_ended(batcher: BatchBuilder, scan: TableScan, ended: ScanProblem) -> None:
    """Notify that a table was read to its end, or not."""
    more = {"message": ended.text} if ended.text else {}
    if scan.key:
        more["total_rows_deleted"] = str(scan.deleted)
    queue_notification(
        batcher, INCREMENTAL, NotificationType.TABLE_SCAN_COMPLETED, id_=_id(scan), scanned_collection=scan.table,
        total_rows_scanned=str(scan.rows), status=str(ended.status), **more,
    )  # fmt: skip


def incremental_ended(batcher: BatchBuilder, scan: TableScan, type_: NotificationType, **data: str) -> None:
    """``COMPLETED``, ``ABORTED``, ``PAUSED`` or ``RESUMED``, of the snapshot that a table belongs to."""
    queue_notification(batcher, INCREMENTAL, type_, id_=_id(scan), **data)


def key_text(key: list[object] | None) -> str:
    """Format a key as text.

    >>> key_text([7, "a"]), key_text(None)
    ('[7, "a"]', '')
    """
    return "" if key is None else json.dumps(key, ensure_ascii=False)


def _id(scan: TableScan) -> str:
    return scan.signal or str(scan.request)


def _names(names: object) -> str:
    return ", ".join(str(name) for name in names)  # type: ignore[attr-defined]
