"""Each property of the sink does the same with workers and without: it is taken by them, or the driver writes by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import CdcError, ConfigError
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.database.apply.database_apply import DatabaseApply
from airflow_provider_cdc.targets.database.config import EQUAL, DatabaseTargetConfig
from airflow_provider_cdc.targets.database.parallel.staged_parallel_apply import StagedDatabaseApply
from airflow_provider_cdc.targets.database.target_engine import open_engine
from tests.support.connectors import Connector, memory_connector
from tests.targets.database.apply.test_database_apply import write_transactions
from tests.targets.database.conftest import _FIXTURES
from tests.targets.database.killed import ALL
from tests.targets.database.parallel.test_staged_parallel_apply import WorkerCount

_NONE = {"delete.enabled": False, "truncate.enabled": False}
CASES: dict[str, list[dict[str, Any]]] = {
    "name": [{"name": "second"}],
    "insert.mode": [{"insert.mode": "insert"}, {"insert.mode": "update"}],
    "delete.enabled": [{"delete.enabled": False}],
    "truncate.enabled": [{"truncate.enabled": False}],
    "primary.key.mode": [
        {**_NONE, "insert.mode": "insert", "primary.key.mode": "none"}, {**_NONE, "primary.key.mode": "kafka"},
        {**_NONE, "primary.key.mode": "record_value", "primary.key.fields": "id"},
        {**_NONE, "primary.key.mode": "record_header", "primary.key.fields": "h"},
    ],
    "primary.key.fields": [{"primary.key.fields": "id"}],
    "schema.evolution": [{"schema.evolution": "none"}],
    "quote.identifiers": [{"quote.identifiers": True}],
    "collection.name.format": [{"collection.name.format": "x_${source.table}"}],
    "collection.name.shared": [{"collection.name.shared": True}],
    "table.name.format": [{"table.name.format": "${source.table}_y"}],
    "topics": [{"topics": "p.s.One"}],
    "topics.regex": [{"topics.regex": ".*T.*"}],
    "field.include.list": [{"field.include.list": "id,at,a"}],
    "field.exclude.list": [{"field.exclude.list": "p.s.One:a"}],
    "use.time.zone": [{"use.time.zone": "Asia/Tokyo"}],
    "database.time_zone": [{"database.time_zone": "America/New_York"}],
    "batch.size": [{"batch.size": 2}],
    "flush.max.retries": [{"flush.max.retries": 0}],
    "flush.retry.delay.ms": [{"flush.retry.delay.ms": 1}],
    "errors.tolerance": [{"errors.tolerance": "all"}, {"errors.tolerance": "none"}],
    "errors.table": [{"errors.tolerance": "all", "errors.table": "refused"}],
    "marker.table": [{"marker.table": "marks"}],
    "connection.url": [{}],
    "connection.username": [{}],
    "connection.password": [{}],
    "connection.token.provider": [{}],
    "connection.token.credentials": [{}],
    "connection.ssh.conn_id": [{}],
    "connection.pool.timeout": [{"connection.pool.timeout": 1}],
}  # fmt: skip
"""Property → values of it, with what they need. Those of the connection are given in each case, tests/targets/database/test_login_tokens.py has tokens, and tests/hooks/test_ssh_tunnel.py tunnels."""
BY_DRIVER = {"insert.mode": 2, "primary.key.mode": 3}
"""Property → how many of its cases workers have nothing to do with."""
REFUSING = ("errors.tolerance", "errors.table")
"""Here the database refuses a row."""
_WITHOUT = {"changed_at", "refused_at", "claimed_at", "table_name", "error"}


def test_there_is_a_case_of_each_property() -> None:
    assert set(CASES) == {field.alias for field in DatabaseTargetConfig.model_fields.values()}


@pytest.mark.parametrize("name", sorted({*DatabaseTargetConfig.NOT_SUPPORTED}))
def test_what_the_sink_does_not_take_is_refused_by_its_name_before_anything_begins(name: str) -> None:
    given = name.replace("*", "some")
    with pytest.raises(ConfigError, match=given.replace(".", r"\.")):
        DatabaseTargetConfig.parse({**EQUAL, given: "x"})


@pytest.fixture(params=["postgresql", "mariadb"])
def engines(request: pytest.FixtureRequest) -> Iterator[list[sa.Engine]]:
    """Two empty databases of a kind."""
    server = request.getfixturevalue(_FIXTURES[request.param])
    with ExitStack() as stack:
        found = []
        for _ in range(2):
            database = stack.enter_context(server.database("properties"))
            found.append(
                server.url(database)
                if request.param == "postgresql"
                else server.url(f"{database.name}?charset=utf8mb4")
            )
        made = [open_engine(DatabaseTargetConfig.parse({"connection.url": url})) for url in found]
        yield made
        for engine in made:
            engine.dispose()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
def test_a_property_does_the_same_with_workers_and_without(engines: list[sa.Engine], tmp_path: Path, name: str) -> None:
    source, r = MemoryDatabase(str(tmp_path)), Random(4)
    for table in ("s.One", "s.Two"):
        source.create_table(table, {"id": "int64!", "a": "string", "at": "timestamp[us]"}, key=("id",))
    connector = memory_connector(source, tmp_path, topic_prefix="p", batch_max_rows=30)
    _write_and_capture(source, connector, r)
    source.truncate_table("s.Two")
    _write_and_capture(source, connector, r)
    by_driver = 0
    for number, properties in enumerate(CASES[name]):
        for engine in engines:
            _empty_target(engine, refusing=name in REFUSING)
        workers, text, dumps = WorkerCount(), list[str](), list[Any]()
        for engine, staged in zip(engines, (False, True), strict=True):
            text.append(_apply_changes(engine, connector, properties, workers if staged else None))
            dumps.append(_dump(engine))
        assert dumps[0] == dumps[1], (number, properties)
        assert text[0] == text[1]
        by_driver += not workers.topics
    assert by_driver == BY_DRIVER.get(name, 0)


def _write_and_capture(source: MemoryDatabase, connector: Connector, r: Random) -> None:
    for table in ("s.One", "s.Two"):
        write_transactions(source, table, r, 15)
    connector.capture()


def _apply_changes(
    engine: sa.Engine, connector: Connector, properties: dict[str, Any], workers: WorkerCount | None
) -> str:
    """Apply the changes; return the text of the error, or an empty text after a success."""
    url = engine.url
    login = {"connection.username": url.username, "connection.password": url.password}
    plain = sa.URL.create(url.drivername, host=url.host, port=url.port, database=url.database, query=url.query)
    config = DatabaseTargetConfig.parse({**EQUAL, "connection.url": plain.render_as_string(), **login, **properties})
    opened = open_engine(config)
    try:
        if workers is None:
            DatabaseApply(opened, config, connector.changelog, connector.name).apply()
        else:
            StagedDatabaseApply(opened, config, connector.changelog, connector.name, workers, sizes=ALL).apply()
    except CdcError as e:
        return str(e).replace(url.database or "", "")
    finally:
        opened.dispose()
    return ""


def _empty_target(engine: sa.Engine, *, refusing: bool) -> None:
    """Without tables; or with one that takes no row with a certain text."""
    with engine.begin() as connection:
        quote = engine.dialect.identifier_preparer.quote_identifier
        for table in sa.inspect(connection).get_table_names():
            connection.exec_driver_sql(f"DROP TABLE {quote(table)}")
        if refusing:
            name, at = ("p_s_one", "timestamp") if engine.dialect.name == "postgresql" else ("p_s_One", "datetime(6)")
            key = "id bigint PRIMARY KEY"
            connection.exec_driver_sql(f"CREATE TABLE {name} ({key}, a varchar(100) CHECK (a <> 'a'), at {at})")


def _dump(engine: sa.Engine) -> dict[str, list[str]]:
    """Everything but times."""
    found = dict[str, list[str]]()
    quote = engine.dialect.identifier_preparer.quote_identifier
    with engine.connect() as connection:
        for table in sa.inspect(connection).get_table_names():
            rows = connection.exec_driver_sql(f"SELECT * FROM {quote(table)}").mappings()
            found[table] = sorted(str({k: v for k, v in row.items() if k not in _WITHOUT}) for row in rows)
    return found
