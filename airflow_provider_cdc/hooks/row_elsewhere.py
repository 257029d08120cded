"""What targets and the source hold of a row now, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.core.model.row_story import RowStory, SourceNow, TargetNow
from airflow_provider_cdc.hooks.database import CdcDatabaseHook
from airflow_provider_cdc.hooks.row_applied import batch_of

if TYPE_CHECKING:
    from airflow_provider_cdc.changelog.row_key import RowKey
    from airflow_provider_cdc.core.model.schema import TableId, TableSchema
    from airflow_provider_cdc.hooks.connector import ConnectorAccess

Row = dict[str, Any]


class NotLookedAt(Exception):
    """Why a target is not looked at."""


def at_targets(story: RowStory, access: ConnectorAccess, conn_ids: Sequence[str]) -> list[TargetNow]:
    """What each target holds of the row that was asked for, as far as that can be seen without Spark.

    :param conn_ids: connections to target databases
    """
    from airflow_provider_cdc.changelog.applied import AppliedReports

    topic = next((change.topic for change in story.changes if change.topic is not None), None)
    found = []
    for report in AppliedReports(access.changelog().storage, story.connector).all():
        target, location, batch, table = str(report["target"]), str(report["location"]), None, None
        try:
            if topic is None:
                raise NotLookedAt("the change log has no change of the row, so that its table there is not known")
            batch, table = batch_of(report, topic), _table(report, topic)
            row = _rows(report, table, story.key, conn_ids)
            found.append(
                TargetNow(
                    target=target,
                    location=location,
                    table=table,
                    batch=batch,
                    state="no row" if row is None else "row",
                    row=row,
                )
            )
        except NotLookedAt as e:
            found.append(
                TargetNow(target=target, location=location, table=table, batch=batch, state="not looked at", why=str(e))
            )
    return found


def _table(report: dict[str, Any], topic: str) -> str:
    """Where the table of a topic is.

    :raises NotLookedAt: it is not one table whose rows are those of the source
    """
    from airflow_provider_cdc.changelog.applied import rules_of

    rules = rules_of(report)
    if rules is None or rules.rules:
        raise NotLookedAt("its tables are kept by rules: query the table itself")
    location = report["stands"].get(topic, {}).get("location")
    if not location:
        raise NotLookedAt("its last report names no table for it")
    return str(location)


def _rows(report: dict[str, Any], table: str, key: Row, conn_ids: Sequence[str]) -> Row | None:
    if report["target"] == "database":
        return _of_database(str(report["location"]), table, key, conn_ids)
    if report["target"] == "delta":
        return _of_delta(table, key)
    raise NotLookedAt(f"tables of the kind {report['target']} are not read without Spark: query the table itself")


def _of_delta(table: str, key: Row) -> Row | None:
    try:
        import deltalake
    except ImportError:
        raise NotLookedAt("the Python package deltalake is not installed here: query the table itself") from None
    import pyarrow as pa
    import pyarrow.compute as pc

    from airflow_provider_cdc.changelog.plain import plain

    try:
        dataset = deltalake.DeltaTable(table.replace("s3a://", "s3://")).to_pyarrow_dataset()
        condition = pc.scalar(True)
        for name, value in key.items():
            wanted = pa.scalar(value, pa.string()) if isinstance(value, str) else pa.scalar(value)
            condition = condition & (pc.field(name) == wanted.cast(dataset.schema.field(name).type))
        found = dataset.to_table(filter=condition).slice(0, 1)
    except (
        Exception
    ) as e:  # its own errors, and those of Arrow, of every store: none of them says anything of the story
        raise NotLookedAt(
            f"deltalake cannot read it here: {str(e).splitlines()[0] if str(e) else type(e).__name__}"
        ) from e
    rows = [dict(zip(found.column_names, row, strict=True)) for row in zip(*map(plain, found.columns), strict=True)]
    return rows[0] if rows else None


def _of_database(place: str, table: str, key: Row, conn_ids: Sequence[str]) -> Row | None:
    import sqlalchemy as sa

    from airflow_provider_cdc.changelog.plain import plain_value
    from airflow_provider_cdc.sink.config import EQUAL, SinkConfig
    from airflow_provider_cdc.sink.database import open_engine, place_of

    for conn_id in conn_ids:
        try:
            config = SinkConfig.parse({**EQUAL, **CdcDatabaseHook(conn_id).properties()})
            engine = open_engine(config)
        except CdcError as e:
            raise NotLookedAt(e.what) from e
        try:
            # one sink of several of a database has its name at the end
            if not f"{place}/".startswith(f"{place_of(engine, config)}/"):
                continue
            schema, _, name = table.rpartition(".")
            there = sa.Table(name, sa.MetaData(), schema=schema or None, autoload_with=engine)
            columns = {column.name.casefold(): column for column in there.columns}
            wanted = [columns[name.casefold()] == value for name, value in key.items()]
            with engine.connect() as connection:
                row = connection.execute(sa.select(there).where(*wanted)).mappings().first()
            return None if row is None else {str(name): plain_value(value) for name, value in row.items()}
        except KeyError as e:
            raise NotLookedAt(f"it has no column {e}") from e
        except sa.exc.SQLAlchemyError as e:
            raise NotLookedAt(f"the database cannot be asked: {e}") from e
        finally:
            engine.dispose()
    raise NotLookedAt("name the connection to its database with --database-conn-id")


def at_source(story: RowStory, access: ConnectorAccess, table: TableId, key: RowKey) -> SourceNow:
    """The row at the source now, masked and with the columns that the connector captures.

    :raises CdcError: the source cannot be asked
    """
    from airflow_provider_cdc.changelog.key_index import key_columns
    from airflow_provider_cdc.core.config.filters import Filters
    from airflow_provider_cdc.core.errors import QueryRefused
    from airflow_provider_cdc.core.spi.chunks import KeyRange
    from airflow_provider_cdc.runtime import parse_config

    current = access.current()
    properties = current.properties()
    config = parse_config(current.definition, properties)
    with current.open_source(properties) as source, source.chunks(signals=None) as reader:
        found = reader.table(table)
        if found is None:
            return SourceNow(row=None, equal=story.row.state == "no row", position=str(source.current_position()))
        schema = Filters(config).select(found)
        values = key.of(key_columns(schema))
        if values is None:
            raise QueryRefused(
                f"{table} has the key {', '.join(schema.key) or 'none'} at the source now, and not {', '.join(key.values)}.",
                safe="Nothing was read.",
            )
        wanted = KeyRange(found, schema.key, keys=tuple(reader.keys(found, schema.key, [values])))
        blocks = reader.read(wanted, 2).rows
        row = _encoded(config, source, blocks) if blocks else None
        position = str(source.current_position())
    return _compared(story, schema, row, position)


def _encoded(config: Any, source: Any, blocks: Sequence[Any]) -> Row | None:
    """The row as an event has it."""
    from airflow_provider_cdc.changelog.plain import plain
    from airflow_provider_cdc.core.config.filters import Filters
    from airflow_provider_cdc.core.writing.envelope import Envelope

    envelope = Envelope(config, Filters(config), source.connector, source.source_fields)
    batches, _ = envelope.encode_read(blocks[0], source.current_position(), 0, snapshot="false")
    return plain(batches[0].events["after"])[0] if batches else None


def _compared(story: RowStory, schema: TableSchema, row: Row | None, position: str) -> SourceNow:
    now = story.row
    if now.state == "unknown":
        return SourceNow(row=row, equal=None, position=position)
    if row is None or now.row is None:
        return SourceNow(row=row, equal=row is None and now.row is None, position=position)
    known = [name for name in schema.names if name in row and name not in now.unavailable]
    different = [name for name in known if name not in now.row or now.row[name] != row[name]]
    different += [name for name in now.row if name not in schema.names]
    return SourceNow(row=row, equal=not different, different=different, position=position)
