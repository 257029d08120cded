"""Carries the open transactions of a stream over to the next one.

The state is that of a window's end: all rows up to its SCN were mined. It is of use to every stream that begins at a position whose commits
are captured up to that SCN, or to a later one: the stream mines what follows, and passes over the commits that are captured. So the state may
be older than the position. It has the open transactions, whether they have rows of captured tables or not, the files with their rows, and
what later rows and statements are compared with: the schemas that rows of these transactions may need, and the names that were given
to objects.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from airflow_provider_cdc.core.errors import CdcError, StorageFull, StorageUnavailable
from airflow_provider_cdc.core.model.connector_offset import CarriedFile
from airflow_provider_cdc.core.model.log_items import CarryOverItem
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.spi.carry_over import CarryOver, CarryOverLost
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.position import OraclePosition
from airflow_provider_cdc.sources.oracle.stream_counters import CarriedCounters
from airflow_provider_cdc.sources.oracle.transactions.buffer.row_segments import CarriedRows, RowSegment
from airflow_provider_cdc.sources.oracle.transactions.carry_over.row_file import (
    RowFile,
    RowFileTooLarge,
    describe_row_file,
    write_row_file,
)
from airflow_provider_cdc.sources.oracle.transactions.row_processor import RowProcessor

log = logging.getLogger(__name__)


class CarryOverFailed(Exception):
    """The open transactions of this moment cannot be carried over, for the reason that this says."""


class CarriedTransactions:
    """The transactions that one stream has carried over, and those that it carries over to the next one.

    :param carried: ``None``: nothing is carried over
    """

    def __init__(self, config: OracleConfig, carried: CarryOver | None, counters: CarriedCounters) -> None:
        self._most = config.carried_bytes
        self._hidden = config.hides_columns and not self._most
        self._carried, self._counters = carried, counters
        self._scn = 0
        self._logged: set[str] = set()

    def restore_transactions(self, processor: RowProcessor) -> int | None:
        """Give a new processor the open transactions.

        :return: the SCN after which mining continues; ``None``: where the processor's position says
        :raises StorageUnavailable: the change log's storage does not answer
        """
        if self._carried is None or not self._most:
            return None
        position = processor.position
        try:
            state = self._carried.load_state()
            if state is None:
                return None
            _fits(state, position)
        except CarryOverLost as e:
            self.record_loss(e, position)
            return None
        if int(state["scn"]) < position.scn:  # all of its transactions have ended
            return None
        self._scn = int(state["scn"])
        segments = [_segment(self._carried, document, processor) for document in state["segments"]]
        processor.schema_versions.restore_state(state["schemas"])
        processor.transactions.restore_state(state, segments)
        self._counters.record_carried_changes(
            sum(segment.live_rows for segment in segments), (_rows(segment).file.bytes for segment in segments)
        )
        log.info(
            "%d open transactions with %d changes were carried over: mining resumes after SCN %d, where the "
              "previous run ended, instead of SCN %d, where the oldest of these transactions started.",
            len(processor.transactions), processor.transactions.change_count, self._scn, position.scn,
        )  # fmt: skip
        return self._scn

    def record_loss(self, why: CarryOverLost, position: OraclePosition) -> None:
        """Record that carried state cannot be used: the log is mined again."""
        log.warning(
            "The carried-over open transactions cannot be used: %s. The log is mined again from SCN %d, where the "
              "oldest of them started; no changes are lost.",
            why, position.scn,
        )  # fmt: skip
        self._counters.lost += 1
        self._counters.record_carried_changes(0, ())

    def drop_carried(self, position: OraclePosition) -> CarryOverItem:
        """Return the item that ends the validity of the carried state."""
        self._scn = 0
        if self._carried is not None:
            self._carried.clear_state()
        self._counters.record_carried_changes(0, ())
        return CarryOverItem(position, None)

    def save_transactions(self, processor: RowProcessor, scn: int, *, last: bool) -> CarryOverItem | None:
        """Put the open transactions where the next stream finds them, if it is time to.

        :param scn: all rows up to it were processed, and none after it
        :param last: the stream ends here
        :return: the item that makes it valid; ``None``: the state before stays valid
        :raises CarryOverLost: rows that were carried over cannot be read
        """
        carried, transactions = self._carried, processor.transactions
        if carried is None or scn <= self._scn:
            return None
        if transactions.worth_carrying and (last or carried.is_due) and self._allowed():
            try:
                file = self._put(carried, processor, scn)
            except (CarryOverFailed, StorageUnavailable, StorageFull) as e:
                self._warn_once(
                    "failed",
                    "Open transactions are not carried over: %s. The next run mines the log again from SCN "
                            "%d; no changes are lost.",
                    e.message if isinstance(e, CdcError) else e, max(self._scn, processor.position.scn),
                )  # fmt: skip
            else:
                self._scn = scn
                return CarryOverItem(processor.position, file)
        if carried.has_state and self._scn < processor.position.scn:  # all of its transactions have ended
            return self.drop_carried(processor.position)
        return None

    def _allowed(self) -> bool:
        if self._hidden:
            self._warn_once(
                "hidden",
                "Open transactions are not carried over, because the redo SQL of their changes would expose "
                "hidden columns. To carry them over anyway, set log.mining.buffer.carry.max.bytes.",
            )
        return self._most > 0

    def _put(self, carried: CarryOver, processor: RowProcessor, scn: int) -> CarriedFile:
        position, versions, transactions = processor.position, processor.schema_versions, processor.transactions
        added: list[CarriedFile] = []

        def write(segment: RowSegment) -> CarriedRows:
            try:
                rows = write_row_file(carried, segment, self._most)
            except RowFileTooLarge:
                raise self._too_large() from None
            added.append(rows.file)
            if any(versions.is_unknown_table(number) for number in rows.tables.tolist()):
                raise CarryOverFailed("the table of some of their rows is unknown")
            return rows

        def whole(segments: list[RowSegment]) -> tuple[list[RowSegment], CarriedFile]:
            files = [_rows(segment).file for segment in segments]
            if sum(file.bytes for file in files) > self._most:
                raise self._too_large()
            state = {
                "scn": scn, "dbid": position.dbid, "resetlogs": position.resetlogs, **transactions.export_state(),
                "segments": [_described(segment, processor) for segment in segments], "schemas": versions.export_state(),
            }  # fmt: skip
            return segments, carried.store_state(state, files)

        try:
            segments, file = transactions.carry_segments(write, whole)
        except BaseException:
            carried.discard_files(added)
            raise
        self._counters.record_carried_changes(
            sum(segment.live_rows for segment in segments), (_rows(segment).file.bytes for segment in segments)
        )
        self._counters.written += sum(carried_file.bytes for carried_file in (*added, file))
        return file

    def _too_large(self) -> CarryOverFailed:
        return CarryOverFailed(f"their rows exceed log.mining.buffer.carry.max.bytes ({self._most:,} bytes)")

    def _warn_once(self, topic: str, text: str, *values: object) -> None:
        """Once a stream."""
        if topic not in self._logged:
            self._logged.add(topic)
            log.warning(text, *values)


def _fits(state: dict[str, Any], position: OraclePosition) -> None:
    """Check that the state fits the position.

    :raises CarryOverLost: the state is of no use to a stream that begins at the position
    """
    if (state["dbid"], state["resetlogs"]) != (position.dbid, position.resetlogs):
        raise CarryOverLost("they belong to another incarnation of the database")
    if int(state["scn"]) > position.read_scn:
        raise CarryOverLost(f"they were stored at SCN {state['scn']}, and the position was set back to {position}")


def _rows(segment: RowSegment) -> RowFile:
    assert isinstance(segment.carried, RowFile)
    return segment.carried


def _described(segment: RowSegment, processor: RowProcessor) -> dict[str, Any]:
    rows, live = _rows(segment), segment.live
    tables = [processor.schema_versions.find_table(number).model_dump(mode="json") for number in rows.tables.tolist()]
    return describe_row_file(rows, tables) | {
        "transactions": processor.transactions.find_state_numbers(segment.serials[live]),
        "starts": segment.starts[live].tolist(),
        "ends": segment.ends[live].tolist(),
        "rows": segment.rows,
        "size": segment.size,
    }


def _segment(carried: CarryOver, document: dict[str, Any], processor: RowProcessor) -> RowSegment:
    """Build a segment of the state. Its transactions are numbered as in the state."""
    tables = [
        processor.schema_versions.assign_table_number(TableId.model_validate(table)) for table in document["tables"]
    ]
    serials, starts, ends = (np.array(document[name], np.int64) for name in ("transactions", "starts", "ends"))
    file = CarriedFile.model_validate(document["file"])
    rows = RowFile(carried, file, document["pieces"], np.array(tables, np.int32), serials, starts)
    return RowSegment.from_carried(rows, serials, starts, ends, document["rows"], document["size"])
