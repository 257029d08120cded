"""The SELECT on ``V$LOGMNR_CONTENTS``: its conditions, and the types of its columns.

Conditions in the query reduce the number of rows that are fetched (Debezium Oracle connector, "LogMiner query filter modes"). :class:`.core.config.capture_filters.Filters` alone decides
which rows are captured. So the conditions may keep more rows than the filters, never fewer: a
pattern that Oracle would interpret in another way is not part of the query, and rows with unknown names, because the dictionary is newer
than the row, are kept.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.config_enums import QueryFilterMode
from airflow_provider_cdc.sources.oracle.flat_columns import flatten_column
from airflow_provider_cdc.sources.oracle.kernels.operation_codes import (
    COMMIT,
    DDL,
    DELETE,
    INSERT,
    INTERNAL,
    LOB_CODES,
    MISSING_SCN,
    NO_PLACE,
    NO_ROW_ID,
    REPLICATION_MARKER,
    ROLLBACK,
    START,
    STRING_CODES,
    UNSUPPORTED,
    UPDATE,
    XML_CODES,
)
from airflow_provider_cdc.sources.oracle.schema.schema_signal import signal_table
from airflow_provider_cdc.sources.oracle.schema.system_tables import SYSTEM_SCHEMAS, is_system
from airflow_provider_cdc.sources.oracle.transactions.buffer.open_transactions import UNKNOWN
from airflow_provider_cdc.sources.oracle.transactions.partial_xids import PARTIAL
from airflow_provider_cdc.sources.relational.sql_quoting import quote_literal

log = logging.getLogger(__name__)

TRANSACTIONS: Final = (START, COMMIT, MISSING_SCN, ROLLBACK, REPLICATION_MARKER)
CHANGES: Final = (INSERT, DELETE, UPDATE, UNSUPPORTED)
RECYCLED: Final = "BIN$"
"""Prefix of the names of dropped tables in the recycle bin."""
STALE: Final = 2
"""``STATUS`` of rows that do not match LogMiner's dictionary: their table may have had another name or other columns."""

BATCH: Final = pa.schema(
    [
        pa.field("scn", pa.int64()),
        pa.field("code", pa.int16()),
        pa.field("sql", pa.large_string()),
        pa.field("csf", pa.bool_()),
        pa.field("xid", pa.binary()),
        pa.field("owner", pa.large_string()),
        pa.field("table", pa.large_string()),
        pa.field("row_id", pa.large_string()),
        pa.field("rollback", pa.bool_()),
        pa.field("info", pa.large_string()),
        pa.field("ssn", pa.int64()),
        pa.field("thread", pa.int32()),
        pa.field("object", pa.int64()),
        pa.field("object_version", pa.int64()),
        pa.field("rs_id", pa.large_string()),
        pa.field("user", pa.large_string()),
        pa.field("client_id", pa.large_string()),
        pa.field("ts_us", pa.int64()),
        pa.field("status", pa.int32()),
    ]
)
"""The columns of a batch of rows. ``ts_us`` is µs since the epoch, UTC; ``owner`` and ``table`` are as LogMiner names them."""

_SOURCES = (
    "SCN", "OPERATION_CODE", "SQL_REDO", "CSF", "XID", "SEG_OWNER", "TABLE_NAME", "ROW_ID", "ROLLBACK", "INFO", "SSN", "THREAD#",
    "DATA_OBJ#", "DATA_OBJV#", "RS_ID", "USERNAME", "CLIENT_ID", "TIMESTAMP", "STATUS",
)  # fmt: skip
WIRE: Final = pa.schema(
    [
        pa.field(source, {"csf": pa.int8(), "rollback": pa.int8(), "ts_us": pa.timestamp("s")}.get(f.name, f.type))
        for source, f in zip(_SOURCES, BATCH, strict=True)
    ]
)
"""The Arrow schema that the driver is asked for: NUMBER as integers, so that SCNs beyond 2**53 are exact."""

_MOST_IN_LIST = 1_000
_PLAIN = r"[A-Za-z0-9_ ~@#%&=:;<>,!/'\"-]"
_PORTABLE = re.compile(rf"(?:(?:{_PLAIN}|\\[.$^*+?()\[\]{{}}|]|\.|\[[A-Za-z0-9_]+(?:-[A-Za-z0-9])?[A-Za-z0-9_]*\]|\((?!\?)|[|)])(?:[*+?]|\{{\d+(?:,\d*)?\}})?)*")  # fmt: skip
"""Regular expressions with the same meaning in Python and Oracle: without lookaround, group options and Python's own classes."""
_ESCAPED = re.compile(r"\\([.$])")


def contents_query(config: OracleConfig, container: int | None = None) -> str:
    """Return the SELECT, with the bind variables ``:low`` and ``:high`` for the first and last SCN.

    Its columns are those of :data:`WIRE`. Rows come in LogMiner's order: that of the log, which is nearly that of the SCNs.

    :param container: the container to capture. Each has its own undo and its own object numbers, so XIDs and ``DATA_OBJ#`` are the same in
        several; ``SRC_CON_ID`` needs no dictionary. ``None`` = the database has no containers
    """
    long_values = STRING_CODES + (LOB_CODES + XML_CODES if config.lob_enabled else ())
    kinds = [
        f"OPERATION_CODE IN ({_numbers(TRANSACTIONS)})",
        f"(OPERATION_CODE = {DDL} AND (INFO IS NULL OR INFO NOT LIKE 'INTERNAL DDL%') AND {_foreign()})",
        f"((OPERATION_CODE IN ({_numbers(CHANGES + long_values)})"
        f" OR (OPERATION_CODE = {INTERNAL} AND ROW_ID NOT LIKE '%{NO_PLACE}')) AND {_data(config)})",
    ]
    conditions = [f"({' OR '.join(kinds)})"]
    if container is not None:
        conditions.append(f"(SRC_CON_ID = {container} OR OPERATION_CODE = {MISSING_SCN})")
    return (
        f"SELECT {', '.join(_SOURCES)} FROM V$LOGMNR_CONTENTS WHERE SCN >= :low AND SCN <= :high AND "
        + " AND ".join(conditions)
    )


def decode_contents(fetched: pa.Table, utc_offset: int) -> pa.RecordBatch:
    """Return the fetched rows as a batch with the schema :data:`BATCH`.

    :param fetched: rows with the schema :data:`WIRE`
    :param utc_offset: of the server's clock, seconds
    """
    columns = [flatten_column(column) for column in fetched.columns]
    by_name = dict(zip(BATCH.names, columns, strict=True))
    for flag in ("csf", "rollback"):
        by_name[flag] = pc.fill_null(pc.not_equal(by_name[flag], 0), False)
    nowhere = pc.ends_with(by_name["row_id"], NO_PLACE)
    by_name["row_id"] = pc.if_else(pc.fill_null(nowhere, False), NO_ROW_ID, by_name["row_id"])
    seconds = by_name["ts_us"].cast(pa.int64())
    by_name["ts_us"] = pc.multiply(pc.subtract(seconds, utc_offset), 1_000_000)
    return pa.RecordBatch.from_arrays([by_name[name] for name in BATCH.names], schema=BATCH)


# conditions


def _data(config: OracleConfig) -> str:
    """Return the condition on changes of rows, by the owner and table name that LogMiner gives."""
    flush = f"(SEG_OWNER = {quote_literal(config.database_user.upper())} AND TABLE_NAME = {quote_literal(config.log_mining_flush_table_name.upper())})"
    conditions = [_foreign(), f"NOT {flush}"]
    mode = config.log_mining_query_filter_mode
    if mode is not QueryFilterMode.NONE:
        condition = _in_list if mode is QueryFilterMode.IN else _expressions
        lists = [
            ("SEG_OWNER", 0, config.schema_include_list, config.schema_exclude_list),
            ("SEG_OWNER || '.' || TABLE_NAME", 1, config.table_include_list, config.table_exclude_list),
        ]
        conditions += [text for expression, dots, *pair in lists for text in _lists(condition, expression, dots, *pair)]
    named = " AND ".join(conditions)
    if mode is not QueryFilterMode.NONE and config.signal_data_collection is not None:
        signals = signal_table(config.signal_data_collection, config)
        named = f"({named}) OR (SEG_OWNER = {quote_literal(signals.namespace)} AND TABLE_NAME = {quote_literal(signals.name)})"
    users = _users(config) if mode is not QueryFilterMode.NONE else ""
    unresolved = (
        f"SEG_OWNER IS NULL OR TABLE_NAME IS NULL OR SEG_OWNER = '{UNKNOWN}' OR TABLE_NAME LIKE 'OBJ# %'"
        f" OR TABLE_NAME LIKE '{RECYCLED}%' OR STATUS = {STALE}"
    )
    return f"({unresolved} OR ({named}))" + (f" AND {users}" if users else "")


def _foreign() -> str:
    """Return the condition that excludes Oracle's own schemas."""
    return (
        f"(SEG_OWNER IS NULL OR SEG_OWNER NOT IN ({', '.join(quote_literal(name) for name in sorted(SYSTEM_SCHEMAS))}))"
    )


def _lists(
    condition: Callable[[str, int, Sequence[str]], str | None],
    expression: str,
    dots: int,
    include: Sequence[str],
    exclude: Sequence[str],
) -> list[str]:
    texts = []
    if include and (text := condition(expression, dots, include)):
        texts.append(text)
    # each pattern by itself: one that cannot be part of the query must not exclude the others from it
    excluded = [text for pattern in exclude if (text := condition(expression, dots, [pattern]))]
    if excluded and not include:
        texts.append(f"NOT ({' OR '.join(excluded)})")
    return texts


def _in_list(expression: str, dots: int, patterns: Sequence[str]) -> str | None:
    """Return a condition by exact names, case-insensitive like the filters.

    The condition is ``None`` if a pattern is not a plain name.
    """
    if not all(_is_name(pattern, dots) for pattern in patterns):
        _not_handed_over(patterns)
        return None
    names = [quote_literal(_ESCAPED.sub(r"\1", pattern).upper()) for pattern in patterns]
    parts = [
        f"UPPER({expression}) IN ({', '.join(names[at : at + _MOST_IN_LIST])})"
        for at in range(0, len(names), _MOST_IN_LIST)
    ]
    return f"({' OR '.join(parts)})"


def _is_name(pattern: str, dots: int) -> bool:
    """Check whether a pattern matches exactly one name: it has no wildcard, and as many dots as the name."""
    return bool(re.fullmatch(r"(?:[A-Za-z0-9_# ]|\\?\.|\\\$)+", pattern)) and pattern.count(".") == dots


def _expressions(expression: str, dots: int, patterns: Sequence[str]) -> str | None:
    if not all(is_portable_pattern(pattern) for pattern in patterns):
        _not_handed_over(patterns)
        return None
    tests = [f"REGEXP_LIKE({expression}, {quote_literal(f'^({pattern})$')}, 'i')" for pattern in patterns]
    return f"({' OR '.join(tests)})"


def is_portable_pattern(pattern: str) -> bool:
    """Check whether a pattern has the same meaning in Oracle's regular expressions.

    >>> is_portable_pattern(r"APP\\.(ORDERS|LINES_[0-9]+)"), is_portable_pattern(r"APP\\.(?!TMP).*")
    (True, False)
    """
    return _PORTABLE.fullmatch(pattern) is not None and len(pattern) < 500


def _not_handed_over(patterns: Sequence[str]) -> None:
    log.info(
        "log.mining.query.filter.mode: the database cannot evaluate %s, so it is not part of the query.",
        ", ".join(patterns),
    )


def _users(config: OracleConfig) -> str:
    """Return the conditions on user and client id.

    Rows of a transaction that began before the range are kept: they have neither.
    """
    tests = []
    for column, include, exclude in (
        ("UPPER(USERNAME)", config.log_mining_username_include_list, config.log_mining_username_exclude_list),
        ("CLIENT_ID", config.log_mining_clientid_include_list, config.log_mining_clientid_exclude_list),
    ):
        fold = str if column == "CLIENT_ID" else str.upper
        for names, word in ((include, "IN"), (exclude, "NOT IN")):
            if names:
                listed = ", ".join(quote_literal(fold(name)) for name in names)
                without = "CLIENT_ID IS NULL OR " if column == "CLIENT_ID" and word == "NOT IN" else ""
                tests.append(f"{without}{column} {word} ({listed})")
    condition = " AND ".join(f"({test})" for test in tests)
    return f"(USERNAME IS NULL OR USERNAME = '{UNKNOWN}' OR {condition})" if condition else ""


def _numbers(codes: Sequence[int]) -> str:
    return ", ".join(map(str, codes))


class MinedRowFilter:
    """Filters rows after the query: unsupported rows of tables that are not captured, and rows that an earlier window had."""

    def __init__(self, config: OracleConfig, filters: Filters) -> None:
        self._config = config
        self._filters = filters
        self._tables: dict[tuple[str, str], bool] = {}

    def filter_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that are not known to be of no use."""
        unsupported = pc.equal(batch.column("code"), UNSUPPORTED)
        if pc.any(unsupported).as_py():
            return batch.filter(pc.invert(self._foreign(batch, unsupported)))
        return batch

    @staticmethod
    def without_earlier(batch: pa.RecordBatch, start: int, late: Mapping[bytes, int]) -> pa.RecordBatch:
        """Return the rows of a window, and the earlier ones of some transactions.

        :param start: SCN after which the window begins
        :param late: XID → start SCN of these transactions
        """
        scns = batch.column("scn").to_numpy()
        delivered = scns > start
        if delivered.all():
            return batch
        in_slot = {xid[:4]: (xid, scn) for xid, scn in late.items()}
        xids = batch.column("xid")
        for i in np.flatnonzero(~delivered).tolist():
            xid = xids[i].as_py() or b""
            whole, scn = in_slot.get(xid[:4], (b"", 0))
            delivered[i] = whole and scns[i] >= scn and (xid == whole or xid.endswith(PARTIAL))
        return batch.filter(pa.array(delivered))

    def _foreign(self, batch: pa.RecordBatch, unsupported: pa.Array) -> pa.Array:
        """Mask of unsupported rows of tables that are known not to be captured."""
        pairs = zip(
            unsupported.to_pylist(), batch.column("owner").to_pylist(), batch.column("table").to_pylist(), strict=True
        )
        return pa.array([bool(flag) and not self._captured(owner, table) for flag, owner, table in pairs])

    def _captured(self, owner: str | None, table: str | None) -> bool:
        if not owner or not table or owner == UNKNOWN or table.startswith(("OBJ# ", RECYCLED)):
            return True
        if (is_captured := self._tables.get((owner, table))) is None:
            id_ = TableId(namespace=owner, name=table)
            is_captured = self._tables[owner, table] = not is_system(
                id_, self._config
            ) and self._filters.is_table_captured(id_)
        return is_captured
