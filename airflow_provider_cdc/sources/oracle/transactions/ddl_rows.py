"""Rows that are processed one by one: DDL, and missing redo (``MISSING_SCN``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from airflow_provider_cdc.core.errors import SourceLogDamaged
from airflow_provider_cdc.core.model.log_items import LogItem, SchemaChange, Truncate
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.kernels.operation_codes import DDL, MISSING_SCN
from airflow_provider_cdc.sources.oracle.position import OraclePosition, transaction_id
from airflow_provider_cdc.sources.oracle.schema import ddl
from airflow_provider_cdc.sources.oracle.schema.ddl_applier import DdlApplier
from airflow_provider_cdc.sources.oracle.schema.schema_versions import SchemaVersions
from airflow_provider_cdc.sources.oracle.stream_counters import RowCounters
from airflow_provider_cdc.sources.oracle.transactions.buffer.commit_positions import TransactionCommit, position_after

CODES: Final = (DDL, MISSING_SCN)


class DdlRowProcessor:
    """Makes log items of DDL rows; the other codes are errors.

    :param start: statements before this position are captured already
    :param applier: applies DDL statements to the schemas of captured tables
    """

    def __init__(
        self,
        config: OracleConfig,
        start: OraclePosition,
        versions: SchemaVersions,
        applier: DdlApplier,
        counters: RowCounters,
    ) -> None:
        self._catalog, self._start = config.catalog_name, start
        self._versions, self._applier, self._counters = versions, applier, counters

    def build_items(
        self, row: dict[str, object], position: OraclePosition, open_low: int
    ) -> Iterator[tuple[LogItem, OraclePosition]]:
        """Yield the items of a row, each with the position after it.

        :param position: the position before the row
        :param open_low: SCN at which the oldest open transaction began
        :raises SourceLogDamaged: redo is missing
        """
        code, scn = row["code"], int(str(row["scn"]))
        if code == MISSING_SCN:
            raise SourceLogDamaged(
                f"LogMiner reports missing redo: {row['info'] or row['sql'] or 'MISSING_SCN'}.",
                where=f"SCN {scn}",
                safe="Everything before the missing redo is captured.",
                remedy="make sure that all archived logs from this SCN on exist; to continue without them, set "
                "snapshot.mode=always for one run",
            )
        yield from self._statement(row, scn, position, open_low)

    def _statement(
        self, row: dict[str, object], scn: int, position: OraclePosition, open_low: int
    ) -> Iterator[tuple[LogItem, OraclePosition]]:
        xid = row["xid"]
        assert isinstance(xid, bytes)
        thread = int(str(row["thread"]))
        transaction = transaction_id(xid)
        if self._start.has_commit(scn, thread, transaction) or not row["sql"]:
            return
        text = str(row["sql"])
        effect = self._applier.apply(
            ddl.parse_ddl_statement(text), str(row["owner"] or row["user"] or ""), f"SCN {scn}"
        )
        changes, truncated = effect.changes, effect.truncated
        self._counters.unknown_ddl += effect.unknown
        self._versions.note_names(changes, int(str(row["object"] or 0)) if len(changes) == 1 else 0, scn)
        if not changes and not truncated:
            return
        ts_us = int(str(row["ts_us"]))
        # Oracle commits a DDL statement by itself
        position = position_after(
            position, [TransactionCommit(-1, transaction, scn, thread, ts_us)], min(open_low, scn)
        )
        source = {
            "txId": transaction, "scn": str(scn), "rs_id": str(row["rs_id"] or "").strip() or None, "ssn": row["ssn"],
            "redo_thread": thread, "user_name": row["user"],
        }  # fmt: skip
        if truncated:
            yield Truncate(truncated, position, ts_us, transaction, source), position
        if changes:
            old = self._versions.replaced_by(changes)
            yield SchemaChange(text, self._catalog, changes, position, ts_us, source), position
            self._versions.keep_replaced_schemas(old, scn)
