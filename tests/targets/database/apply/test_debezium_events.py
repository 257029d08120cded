"""Events that some Debezium has written, in a relational database: what the Debezium JDBC sink connector makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.database.apply.database_apply import DatabaseApply
from airflow_provider_cdc.targets.database.config import EQUAL, DatabaseTargetConfig
from airflow_provider_cdc.targets.database.schema.value_kinds import ValueKind, kind_of
from airflow_provider_cdc.targets.database.target_engine import open_engine
from tests.sources.debezium.written import Row, Topic, connector, node, write
from tests.support.connectors import Connector

FIELDS = [node("id", "int32", optional=False), node("name", "string")]
TABLE = "shop_inventory_orders"


@pytest.fixture
def engine(tmp_path: Path) -> Any:
    engine = open_engine(DatabaseTargetConfig.parse({"connection.url": f"sqlite:///{tmp_path}/target.db"}))
    yield engine
    engine.dispose()


def _apply_events(engine: sa.Engine, found: Connector, properties: Row) -> list[Row]:
    found.capture()
    DatabaseApply(
        engine, DatabaseTargetConfig.parse({"schema.evolution": "basic", **properties}), found.changelog, found.name
    ).apply()
    with engine.connect() as connection:
        rows = connection.execute(sa.text(f"SELECT * FROM {TABLE}")).mappings()
        return sorted(map(dict, rows), key=repr)


def _key(engine: sa.Engine) -> list[str]:
    with engine.connect() as connection:
        return list(sa.inspect(connection).get_pk_constraint(TABLE)["constrained_columns"])


@pytest.mark.parametrize("schemas", [True, False])
@pytest.mark.parametrize("flat", [True, False])
def test_enveloped_and_flat_events_end_in_the_same_rows(
    engine: sa.Engine, tmp_path: Path, schemas: bool, flat: bool
) -> None:
    """With the end of a key after its delete, once more in a separate run, where it finds nothing."""
    topic = Topic(FIELDS if schemas else None)

    def event(op: str, before: Row | None, after: Row | None) -> Row:
        row = after or before
        assert row is not None
        if not flat:
            return topic.event(op, before, after)
        return topic.end({"id": row["id"]}) if op == "d" else topic.flat({"id": row["id"]}, row)

    rows = [{"id": n, "name": "a"} for n in range(4)]
    write(
        tmp_path / "in" / "a.jsonl",
        [
            *(event("c", None, row) for row in rows),
            event("u", rows[1], {"id": 1, "name": "b"}),
            event("d", rows[2], None),
            topic.end({"id": 2}),
        ],
    )
    found = connector(tmp_path)
    expected = [{"id": 0, "name": "a"}, {"id": 1, "name": "b"}, {"id": 3, "name": "a"}]
    assert _apply_events(engine, found, dict(EQUAL)) == expected
    write(tmp_path / "in" / "a.jsonl", [topic.end({"id": 2})])
    assert _apply_events(engine, found, dict(EQUAL)) == expected
    assert _key(engine) == ["id"]


def test_of_a_delete_only_the_key_decides(engine: sa.Engine, tmp_path: Path) -> None:
    topic = Topic(FIELDS)
    wrong = topic.event("d", {"id": 1, "name": "a"}, None)
    wrong["value"]["payload"]["before"] = {"id": 2, "name": "other"}
    write(tmp_path / "in" / "a.jsonl", [*(topic.event("c", None, {"id": n, "name": "a"}) for n in (1, 2)), wrong])
    assert _apply_events(engine, connector(tmp_path), dict(EQUAL)) == [{"id": 2, "name": "a"}]


def test_a_table_without_a_key_has_none_in_the_target(engine: sa.Engine, tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.jsonl", [Topic(FIELDS, key=()).event("c", None, {"id": 1, "name": "a"})])
    with pytest.raises(TargetError, match="have no key"):
        _apply_events(engine, connector(tmp_path), {"primary.key.mode": "record_key"})


def test_a_bare_key_is_a_column_of_its_name(engine: sa.Engine, tmp_path: Path) -> None:
    record = Topic([FIELDS[1]], key=()).flat(None, {"name": "a"})
    write(
        tmp_path / "in" / "a.jsonl", [record | {"key": {"schema": {"type": "int64", "optional": False}, "payload": 7}}]
    )
    found = connector(tmp_path, events_key_field="number")
    assert _apply_events(engine, found, dict(EQUAL)) == [{"name": "a", "number": 7}]
    assert _key(engine) == ["number"]


def test_source_types_in_events_refine_the_columns(engine: sa.Engine, tmp_path: Path) -> None:
    reported = {"__debezium.source.column.type": "VARCHAR", "__debezium.source.column.length": "20"}
    topic = Topic([FIELDS[0], node("name", "string", parameters=reported)])
    write(tmp_path / "in" / "a.jsonl", [topic.event("c", None, {"id": 1, "name": "a"})])
    found = connector(tmp_path)
    found.capture()
    schema = next(
        s for m in found.changelog.read_manifests("test", after=0) for s in m.schemas["shop.inventory.orders"].values()
    )
    declared = schema.get_column("name").declared
    assert (declared.type_name, declared.length) == ("VARCHAR", 20)
    assert schema.get_column("name").parameters == reported
    assert kind_of(schema.get_column("name")) == ValueKind("text", 20, source_type="VARCHAR")


HEADED = {"events.headers": "tenant,number"}


def _row_with_headers(id_: int, name: str, headers: Row) -> Row:
    return Topic(FIELDS, key=()).flat(None, {"id": id_, "name": name}) | {"headers": headers}


def test_a_key_may_be_that_of_headers(engine: sa.Engine, tmp_path: Path) -> None:
    described = {"schema": {"type": "string", "optional": False}, "payload": "b"}
    write(
        tmp_path / "in" / "a.jsonl",
        [
            _row_with_headers(1, "x", {"tenant": "a", "number": 1, "other": "?"}),
            _row_with_headers(2, "y", {"tenant": described, "number": 1}),
            _row_with_headers(3, "z", {"tenant": "a", "number": 1}),
        ],
    )
    properties = {"primary.key.mode": "record_header", "insert.mode": "upsert"}
    found = connector(tmp_path, HEADED)
    assert _apply_events(engine, found, properties) == [
        {"tenant": "a", "number": 1, "id": 3, "name": "z"},
        {"tenant": "b", "number": 1, "id": 2, "name": "y"},
    ]
    assert _key(engine) == ["tenant", "number"]


def test_some_of_the_headers_may_be_the_key(engine: sa.Engine, tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.jsonl", [_row_with_headers(n, "x", {"tenant": "a", "number": n}) for n in (1, 2)])
    properties = {"primary.key.mode": "record_header", "primary.key.fields": "tenant", "insert.mode": "upsert"}
    assert _apply_events(engine, connector(tmp_path, HEADED), properties) == [
        {"tenant": "a", "number": 2, "id": 2, "name": "x"}
    ]
    assert _key(engine) == ["tenant"]


@pytest.mark.parametrize(("headers", "fields"), [({}, ""), (HEADED, "nix")])
def test_headers_that_are_not_kept_cannot_be_the_key(
    engine: sa.Engine, tmp_path: Path, headers: Row, fields: str
) -> None:
    write(tmp_path / "in" / "a.jsonl", [_row_with_headers(1, "x", {"tenant": "a", "number": 1})])
    properties = {"primary.key.mode": "record_header", "primary.key.fields": fields}
    with pytest.raises(TargetError, match=r"events\.headers"):
        _apply_events(engine, connector(tmp_path, headers), properties)
