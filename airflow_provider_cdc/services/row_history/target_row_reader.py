"""Reader of the rows that targets hold now, without Spark.

It finds the table of a row, the row's key there, and its state by the mode of the table.
"""

from __future__ import annotations

import base64
import datetime as dt
import re
import time
import zoneinfo
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.changelog.row_history.row_history_models import CurrentTargetRow, RowHistory
from airflow_provider_cdc.core.errors import CdcError, SourceBusy, SourceUnavailable
from airflow_provider_cdc.hooks.target_database import CdcDatabaseHook
from airflow_provider_cdc.services.connectors.bounded_calls import call_targets_in_time
from airflow_provider_cdc.services.row_history.lake_row_reader import TargetNotInspected, rows_of
from airflow_provider_cdc.services.row_history.row_apply_times import batch_of

if TYPE_CHECKING:
    import pyarrow as pa
    import sqlalchemy as sa

    from airflow_provider_cdc.changelog.reports.apply_report import ApplyReport, TableState
    from airflow_provider_cdc.changelog.row_history.row_masking import RowMasks
    from airflow_provider_cdc.core.config.target_table_rules import TableRule
    from airflow_provider_cdc.core.model.table_schema import TableId
    from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess

Row = dict[str, Any]
_MOST_PLACES = 50
"""Most tables of one route that are searched: each costs some requests."""


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row as a table holds it.

    :param deleted: it keeps the row, and says that it is deleted
    """

    row: Row | None
    deleted: bool = False
    versions: int | None = None


def at_targets(
    story: RowHistory,
    reports: Sequence[ApplyReport],
    access: ConnectorAccess,
    table: TableId,
    masks: RowMasks,
    conn_ids: Sequence[str],
    answer_s: float | None = None,
) -> list[CurrentTargetRow]:
    """Read the requested row at each target, as far as that can be seen without Spark.

    :param reports: one of each target
    :param table: of the source
    :param conn_ids: connections to target databases
    :param answer_s: seconds to wait for all of them; ``None``: as long as they take
    """
    topic = next((change.topic for change in story.changes if change.topic is not None), None)
    rows, began = [], time.monotonic()
    for report in reports:
        target, location = str(report["target"]), str(report["location"])

        def read(report: ApplyReport = report) -> list[CurrentTargetRow]:
            return _TargetReader(report, topic, access, table, masks, conn_ids).read_rows(story)

        try:
            if answer_s is None:
                rows += read()
            else:
                remaining = max(0.1, began + answer_s - time.monotonic())
                rows += call_targets_in_time(remaining, story.connector, read)
        except TargetNotInspected as e:
            rows.append(CurrentTargetRow(target=target, location=location, state="not looked at", why=str(e)))
        except (SourceBusy, SourceUnavailable) as e:
            rows.append(CurrentTargetRow(target=target, location=location, state="not looked at", why=e.message))
    return rows


class _TargetReader:
    """A target of the row's topic."""

    def __init__(
        self,
        report: ApplyReport,
        topic: str | None,
        access: ConnectorAccess,
        table: TableId,
        masks: RowMasks,
        conn_ids: Sequence[str],
    ) -> None:
        self._report, self._storage = report, access.open_change_log().storage
        from airflow_provider_cdc.changelog.reports.column_origins import ColumnOrigins

        self._table, self._masks, self._conn_ids = table, masks, conn_ids
        self._kind, self._location = str(report["target"]), str(report["location"])
        self._rule = self._rule_of()
        self._origins = ColumnOrigins(self._storage, access.definition.name).read(self._kind, self._location)
        self._topic = topic or self._topic_of_table()

    def read_rows(self, story: RowHistory) -> list[CurrentTargetRow]:
        """Read the row in its tables: of those of a route, in the one that has it.

        :raises NotLookedAt: it is not known which tables these are
        """
        names = [name for name in self._report["table_states"] if self._of_topic(name)]
        if not names:
            raise TargetNotInspected("the last report of the target does not contain the table")
        if len(names) > _MOST_PLACES:
            raise TargetNotInspected(
                f"a route writes rows of the table to {len(names):,} tables, but at most {_MOST_PLACES} are searched: query the tables directly"
            )
        rows = [self._look(name, self._origins.get(name), story) for name in names]
        if len(rows) == 1:
            return rows
        held = [row for row in rows if row.state != "no row"]
        nowhere = f"{len(rows)} tables of a route were searched"
        return held or [rows[0].model_copy(update={"table": None, "why": nowhere})]

    def _rule_of(self) -> TableRule:
        """Return the rule of the table.

        :raises NotLookedAt: the target has events of the table, not its rows
        """
        from airflow_provider_cdc.changelog.reports.apply_report_store import rules_of

        rule = rules_of(self._report).select_rule(self._table)
        if rule.outbox is not None:
            raise TargetNotInspected("the table is an outbox: the target has its events, not its rows")
        return rule

    def _topic_of_table(self) -> str:
        """Return the topic of the table.

        :raises NotLookedAt: it is not recorded
        """
        from airflow_provider_cdc.changelog.reports.apply_report_store import topic_of

        for name, origin in self._origins.items():
            if origin.get("table") == self._table.full_name and name in self._report["table_states"]:
                return topic_of(self._report, name)
        raise TargetNotInspected(
            "the retained change log has no change of the row, so the table at the target is unknown"
        )

    def _of_topic(self, name: str) -> bool:
        from airflow_provider_cdc.changelog.reports.apply_report_store import topic_of

        entry = self._report["table_states"][name]
        return topic_of(self._report, name) == self._topic and bool(entry.get("location")) and not entry.get("routed")

    def _look(self, name: str, origin: Mapping[str, Any] | None, story: RowHistory) -> CurrentTargetRow:
        """Read the row in one table."""
        entry, batch = self._report["table_states"][name], batch_of(self._report, name)
        key = _key_then(story, batch)
        target_row = CurrentTargetRow(
            target=self._kind, location=self._location, table=str(entry["location"]), mode=self._rule.mode, batch=batch, key=key, state="no row",
        )  # fmt: skip
        try:
            held = self._held(entry, origin, key, story.key)
        except TargetNotInspected as e:
            return target_row.model_copy(update={"state": "not looked at", "why": str(e)})
        state = "deleted" if held.deleted else "no row" if held.row is None else "row"
        why = "the last event of the row in the table" if self._rule.mode == "log" and held.row is not None else ""
        if held.row is None and self._rule.filter is not None:
            why = f"the table has only rows that match: {self._rule.filter}"
        return target_row.model_copy(update={"state": state, "row": held.row, "versions": held.versions, "why": why})

    def _held(self, entry: TableState, origin: Mapping[str, Any] | None, key: Row, requested_key: Row) -> StoredRow:
        if self._kind == "database":
            if self._report.get("rules"):
                raise TargetNotInspected("its tables have rules: query the table directly")
            row = _of_database(self._location, str(entry["location"]), key, self._conn_ids)
            return StoredRow(None if row is None else self._masks.mask_stored_row(row, self._table, {}))
        if origin is None:
            raise TargetNotInspected("the origin of its columns is unknown: the next apply records it")
        column_values = _column_values(origin, key) or _column_values(origin, requested_key)
        if column_values is None:
            raise TargetNotInspected(f"its columns {', '.join(key)} differ from the source: query the table directly")
        texts = {name: text for name, text in (entry.get("texts") or {}).items() if name in self._rule.shard}
        if entry.get("shared") and not texts:
            raise TargetNotInspected(
                "it has rows of several source tables, and the last report does not distinguish them"
            )
        rows = rows_of(
            self._kind, str(origin["path"]), origin.get("catalog") or {}, self._storage, {**column_values, **texts}
        )
        origins = {name: column["from"] for name, column in origin["columns"].items()}
        return _by_mode(self._rule.mode, rows, lambda row: self._masks.mask_stored_row(row, self._table, origins))


def _key_then(story: RowHistory, batch: int) -> Row:
    """Return the key that the row had when the table got its last batch: it may have got another one since.

    :param batch: that the table has
    """
    had = next((change for change in story.changes if change.key is not None and change.batch <= batch), None)
    return story.key if had is None or had.next_key is not None or had.key is None else had.key


def _column_values(origin: Mapping[str, Any], key: Row) -> Row | None:
    """Columns of a table → their values for a key of the source; ``None`` if it does not have them as they are there."""
    own = {
        column["from"][0].casefold(): name for name, column in origin["columns"].items() if column["how"] == "identity"
    }
    types = {name.casefold(): type_ for name, type_ in origin["source"].items()}
    if not key or any(name.casefold() not in own for name in key):
        return None
    return {own[name.casefold()]: _as_stored(value, types.get(name.casefold(), "")) for name, value in key.items()}


def _as_stored(value: Any, type_: str) -> Any:
    """Convert a value to the form that tables have: moments of nanoseconds are texts there.

    >>> _as_stored("2024-02-29T12:00:00.1+00:00", "timestamp[ns, tz=UTC]")
    '2024-02-29 12:00:00.100000000Z'
    """
    if value is None or not type_.startswith("timestamp[ns"):
        return value
    moment, _, fraction = str(value).removesuffix("+00:00").removesuffix("Z").replace("T", " ").partition(".")
    return f"{moment}.{fraction:0<9}{'Z' if 'tz' in type_ else ''}"


def _by_mode(mode: str, table: pa.Table, masked: Any) -> StoredRow:
    """Return the state of a row from the rows of its key, by the mode of their table."""
    rows = _plain(table)
    if mode == "history":
        rows.sort(key=lambda row: (row["_is_current"] is True, row["_seq"]))
        last = rows[-1] if rows else None
        gone = last is not None and last["_is_current"] is not True
        return StoredRow(None if last is None else masked(last), gone, len(rows))
    if mode == "log":
        rows.sort(key=lambda row: row["_seq"])
        last = rows[-1] if rows else None
        return StoredRow(None if last is None else masked(last), last is not None and last["_op"] == "d", len(rows))
    row = rows[0] if rows else None
    return StoredRow(None if row is None else masked(row), row is not None and row.get("_is_deleted") is True)


def _plain(table: pa.Table) -> list[Row]:
    from airflow_provider_cdc.changelog.row_history.json_values import to_json_values

    columns = [to_json_values(column) for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _of_database(place: str, table: str, key: Row, conn_ids: Sequence[str]) -> Row | None:
    import sqlalchemy as sa

    from airflow_provider_cdc.changelog.row_history.json_values import plain_value
    from airflow_provider_cdc.targets.database.config import EQUAL, DatabaseTargetConfig
    from airflow_provider_cdc.targets.database.target_engine import open_engine, place_of

    for conn_id in conn_ids:
        try:
            config = DatabaseTargetConfig.parse({**EQUAL, **CdcDatabaseHook(conn_id).resolve_properties()})
            engine = open_engine(config)
        except CdcError as e:
            raise TargetNotInspected(e.message) from e
        try:
            # one sink of several of a database has its name at the end
            if not f"{place}/".startswith(f"{place_of(engine, config)}/"):
                continue
            schema, _, name = table.rpartition(".")
            there = sa.Table(name, sa.MetaData(), schema=schema or None, autoload_with=engine)
            columns = {column.name.casefold(): column for column in there.columns}
            conditions = [
                _same(columns[name.casefold()], value, config.effective_time_zone, engine)
                for name, value in key.items()
            ]
            with engine.connect() as connection:
                row = connection.execute(sa.select(there).where(*conditions)).mappings().first()
            return None if row is None else {str(name): plain_value(value) for name, value in row.items()}
        except KeyError as e:
            raise TargetNotInspected(f"it has no column {e}") from e
        except sa.exc.SQLAlchemyError as e:
            raise TargetNotInspected(f"the database cannot be queried: {e}") from e
        finally:
            engine.dispose()
    raise TargetNotInspected("give the connection to its database with --database-conn-id")


def _same(column: sa.Column[Any], value: object, zone: str, engine: sa.Engine) -> sa.ColumnElement[bool]:
    """Build the condition that a column has a value of a key.

    JSON has the value as a text where the database has bytes, a decimal or a moment.

    :param zone: in which a database that has no type for moments gives them
    :raises NotLookedAt: that cannot be decided
    """
    try:
        kind = column.type.python_type
    except NotImplementedError:
        return column == value
    if not isinstance(value, str):
        return column == value
    try:
        if issubclass(kind, bytes):
            return column == base64.b64decode(value, validate=True)
        if issubclass(kind, Decimal):
            return column == Decimal(value)
        if issubclass(kind, dt.datetime):
            return _same_moment(column, value, zone, engine)
        if issubclass(kind, dt.date):
            return column == dt.date.fromisoformat(value)
    except (ValueError, ArithmeticError):
        raise TargetNotInspected(f"its column {column.name} has another type: query the table directly") from None
    return column == value


def _same_moment(column: sa.Column[Any], value: str, zone: str, engine: sa.Engine) -> sa.ColumnElement[bool]:
    import sqlalchemy as sa

    moment, texts = dt.datetime.fromisoformat(value), engine.dialect.name == "sqlite"
    if (beyond := re.search(r"\.\d{6}(\d+)", value)) and beyond[1].strip("0"):
        raise TargetNotInspected(
            f"its column {column.name} may not have all digits of the key: query the table directly"
        )
    if moment.tzinfo is not None and texts:
        moment = moment.astimezone(zoneinfo.ZoneInfo(zone)).replace(tzinfo=None)
    if moment.tzinfo is not None and engine.dialect.name != "postgresql":  # it depends on the session, too
        raise TargetNotInspected(f"its column {column.name} has times with a time zone: query the table directly")
    if not texts:
        return column == moment
    # a text, with as many digits as the source has
    whole = f"{moment:%Y-%m-%d %H:%M:%S}".rjust(19, "0")
    forms = [whole, f"{whole}.{moment.microsecond // 1000:03}", f"{whole}.{moment.microsecond:06}"]
    exact = forms if not moment.microsecond else forms[1:] if moment.microsecond % 1000 == 0 else forms[2:]
    return sa.type_coerce(column, sa.String).in_(exact)
