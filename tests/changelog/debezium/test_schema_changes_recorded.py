"""Schema change and transaction records are Debezium's own: its engine's records of the same statements were kept, and ours are the same.

What differs is written down below, rule by rule, and nothing else may. Debezium reports types and defaults as a statement spells them; we report what
they are, as the catalog does, so that a snapshot and the log say the same.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.debezium.record_renderer import DebeziumRenderer
from tests.support.connectors import Connector, mysql_connector

RECORDED = Path(__file__).parent / "recorded"
PLACES = ("ts_ms", "ts_us", "ts_ns", "version", "server_id", "gtid", "file", "pos", "thread")
DATABASE = "inv"

WORDS = {
    "INT1": ("TINYINT", 5), "INT2": ("SMALLINT", 5), "INT3": ("MEDIUMINT", 4), "MIDDLEINT": ("MEDIUMINT", 4), "INT4": ("INT", 4),
    "INTEGER": ("INT", 4), "INT8": ("BIGINT", -5), "DEC": ("DECIMAL", 3), "FIXED": ("DECIMAL", 3), "NUMERIC": ("DECIMAL", 3),
    "FLOAT4": ("FLOAT", 6), "FLOAT8": ("DOUBLE", 8), "DOUBLE PRECISION": ("DOUBLE", 8), "REAL": ("DOUBLE", 8), "BOOL": ("TINYINT", 5),
    "BOOLEAN": ("TINYINT", 5), "CHARACTER VARYING": ("VARCHAR", 12), "CHAR VARYING": ("VARCHAR", 12), "CHARACTER": ("CHAR", 1),
    "LONG VARBINARY": ("MEDIUMBLOB", 2004), "LONG VARCHAR": ("MEDIUMTEXT", 12), "LONG": ("MEDIUMTEXT", 12),
    "GEOMCOLLECTION": ("GEOMETRYCOLLECTION", 1111),
}  # fmt: skip
"""Words for a type → what it is, and its JDBC type."""
DEFAULTS = {
    "1970-01-01 00:00:00": ("CURRENT_TIMESTAMP", "NOW(3)", "current_timestamp()", "current_timestamp(3)", "CURRENT_TIMESTAMP(3)", "current_timestamp(6)", "CURRENT_TIMESTAMP(6)", "LOCALTIMESTAMP(6)"),
    "1.5": ("1.50",), "-1": ("-1.00",), "2020-01-01": ("2020-01-01 00:00:00",), "+5": ("5",), "5": ("101",), "TRUE": ("1",), "FALSE": ("0",),
    "ab\\0": ("ab",), 'd""q': ('d"q',), "it''s": ("it's",), None: ("65", "A", "(1 + 1)", "1 + 1", "uuid()", "UUID()"),
}  # fmt: skip
"""Defaults as written → their values; of what only the server knows, its text (Debezium: 1970, or nothing)."""
SIZES = ((255, "TINY"), (65_535, ""), (16_777_215, "MEDIUM"), (1 << 32, "LONG"))


def _load_recording(kind: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((RECORDED / f"schema_changes_{kind}.json").read_text())
    for item in (*document["statements"], *document["snapshot"]):
        for change in item["tableChanges"]:
            if change["table"] is not None:
                columns = change["table"]["columns"]
                change["table"]["columns"] = [dict(zip(document["fields"], c, strict=True)) for c in columns]
    return document


def _as_the_catalog(theirs: dict[str, Any], kind: str) -> dict[str, Any]:
    """A column as Debezium reports it, with its type as what it is and its texts as texts."""
    column = dict(theirs)
    spelled = column["typeName"].replace(" SIGNED", "").replace(" BINARY", "")
    word = next((w for w in sorted(WORDS, key=len, reverse=True) if re.match(rf"{w}\b", spelled)), None)
    if word is not None:
        name, column["jdbcType"] = WORDS[word]
        column["length"] = 1 if word.startswith("BOOL") else column["length"]
        spelled = name + spelled[len(word) :]
    if spelled == "FLOAT" and column["length"] is not None and column["scale"] is None:  # FLOAT(bits)
        spelled, column["jdbcType"] = ("DOUBLE", 8) if column["length"] > 24 else ("FLOAT", 6)
        column["length"] = None
    if spelled in ("TEXT", "BLOB") and column["length"]:
        size = column["length"] * (4 if spelled == "TEXT" and column["charsetName"] == "utf8mb4" else 1)
        spelled, column["length"] = next(prefix for limit, prefix in SIZES if size <= limit) + spelled, None
    if spelled == "CHAR" and column["length"] is None:
        column["length"] = 1
    if spelled == "DECIMAL" and column["length"] == 0:
        column["length"] = 10
    if spelled == "BIT" and column["length"] == 0:
        column["length"] = 1
    if spelled == "JSON" and kind == "mariadb":  # which it is another word for
        spelled, column["jdbcType"], column["charsetName"] = "LONGTEXT", 12, "utf8mb4"
    column["typeName"] = column["typeExpression"] = spelled
    if column["comment"] is not None:
        column["comment"] = column["comment"].replace("''", "'")
    if column["enumValues"] is not None:  # spaces at the end of a member are none of it
        column["enumValues"] = [v[:-1].rstrip(" ") + "'" for v in column["enumValues"]]
    return column


def _same_column(theirs: dict[str, Any], ours: dict[str, Any], kind: str) -> dict[str, Any]:
    """Fields in which a column differs by more than the rules say."""
    expected = _as_the_catalog(theirs, kind)
    if "COLLATE" in theirs or theirs["charsetName"] != ours["charsetName"]:
        charset = (theirs["charsetName"] or "").strip("'").lower().replace("utf8mb3", "utf8")
        # Debezium keeps quotes, does not tell bytes from texts, and knows no character set by its collation
        if (
            charset == (ours["charsetName"] or "").replace("utf8mb3", "utf8")
            or charset == "binary"
            or ours["charsetName"] == "latin1"
        ):
            expected["charsetName"] = ours["charsetName"]
    if ours["defaultValueExpression"] in DEFAULTS.get(theirs["defaultValueExpression"], ()):
        expected["defaultValueExpression"] = ours["defaultValueExpression"]
    if ours["generated"] and not ours["autoIncremented"]:  # computed columns are
        expected["generated"] = True
    if theirs["enumValues"] is None and ours["enumValues"] is not None:  # Debezium: a separate type, SET BINARY
        expected |= {"enumValues": ours["enumValues"], "length": ours["length"]}
    return {k: (v, ours[k]) for k, v in expected.items() if v != ours[k]}


def _same_change(theirs: dict[str, Any], ours: dict[str, Any], kind: str, but: tuple[str, ...] = ()) -> list[str]:
    problems = [f"{k}: {theirs[k]} {ours[k]}" for k in ("type", "id") if theirs[k] != ours[k]]
    a, z = theirs["table"], ours["table"]
    if a is None or z is None:
        return problems + ([] if a == z else ["one has a table"])
    assert z.pop("attributes") == []  # documented; the engine has none
    assert list(z) == list(a)
    comment = a["comment"].replace("''", "'") if a["comment"] else None
    a = a | {"comment": comment}
    problems += [f"{k}: {a[k]} {z[k]}" for k in a if k not in ("columns", *but) and a[k] != z[k]]
    if [c["name"] for c in a["columns"]] != [c["name"] for c in z["columns"]]:
        return [*problems, f"{[c['name'] for c in a['columns']]} {[c['name'] for c in z['columns']]}"]
    for x, y in zip(a["columns"], z["columns"], strict=True):
        assert list(x) == list(y)
        if differs := _same_column(x, y, kind):
            problems.append(f"{theirs['id']}.{x['name']}: {differs}")
    return problems


@pytest.fixture(scope="module", params=["mariadb", pytest.param("mysql", marks=pytest.mark.mysql)])
def streamed_connectors(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Connector, Connector]:
    """The same statements on a server of the same kind: a connector that streamed them, and one that reads what they left."""
    kind = request.param
    server = request.getfixturevalue({"mariadb": "mariadb", "mysql": "mysql97"}[kind])
    server.sql(f"DROP DATABASE IF EXISTS {DATABASE}", "DROP DATABASE IF EXISTS inv2")
    server.sql(
        f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4", f"CREATE TABLE {DATABASE}.seed (id INT PRIMARY KEY)"
    )
    options = {
        "database_include_list": f"{DATABASE},inv2", "topic_prefix": "p", "provide_transaction_metadata": "true",
        "include_schema_comments": "true", "snapshot_mode": "no_data",
    }  # fmt: skip
    streamed = mysql_connector(server, tmp_path_factory.mktemp("streamed"), kind, **options)
    streamed.capture()
    with server.connect(database=DATABASE, autocommit=True) as connection, connection.cursor() as cursor:
        for statement in (RECORDED / f"schema_changes_{kind}.sql").read_text().split("\n;\n"):
            if statement.strip():
                cursor.execute(statement.strip())
    streamed.capture()
    read = mysql_connector(server, tmp_path_factory.mktemp("read"), kind, **options)
    read.capture()
    server.sql(f"DROP DATABASE {DATABASE}")
    return kind, streamed, read


def _documents(connector: Connector, topic: str) -> list[dict[str, Any]]:
    records = DebeziumRenderer(connector.changelog, connector.name, schemas=True).render_records()
    return [json.loads(json.dumps(r.to_document(schemas=True))) for r in records if r.topic == topic]


STALE = {"defaultCharsetName"}
"""Debezium passes over ``ALTER TABLE … DEFAULT CHARACTER SET``: what it says of these tables' character set afterwards is what was."""
STALE_TABLES = ('"inv"."k2"', '"inv"."k4"', '"inv"."k5"', '"inv"."k6"')


def test_schema_changes_in_the_log_are_debeziums(streamed_connectors: tuple[str, Connector, Connector]) -> None:
    kind, streamed, _ = streamed_connectors
    recorded = _load_recording(kind)
    payloads = [d["value"]["payload"] for d in _documents(streamed, "p")]
    ours = {p["ddl"]: p for p in payloads if p["source"]["snapshot"] == "false"}
    problems, compared, unread = [], 0, set()
    for item in recorded["statements"]:
        statement = next((s for s in _statements(kind) if _is_one_of(s, item["ddl"])), None)
        mine = ours.get(statement or "")
        if item["ddl"][0].startswith("DROP TABLE"):  # which the server writes again
            dropped = sorted(c["id"] for c in item["tableChanges"])
            mine = next(
                p for p in payloads if sorted(c["id"] for c in p["tableChanges"] if c["type"] == "DROP") == dropped
            )
        if not item["tableChanges"]:  # Debezium could not read it, or it concerns no table
            unread |= {c["id"] for c in mine["tableChanges"]} if mine else set()
            continue
        if mine is None:
            assert "INDEX" in item["ddl"][0], item["ddl"]  # it changes nothing of the structure
            continue
        if {c["id"] for c in item["tableChanges"]} & unread:
            continue
        theirs, found = (
            sorted(changes, key=lambda c: c["id"]) for changes in (item["tableChanges"], mine["tableChanges"])
        )
        for a, z in zip(theirs, found, strict=True):
            stale = tuple(STALE) if a["id"] in STALE_TABLES else ()
            if "DROP PRIMARY KEY" in item["ddl"][0]:  # for the key the catalog is asked, which has another one by then
                stale += ("primaryKeyColumnNames",)
            problems += [f"{mine['ddl'][:60]}: {p}" for p in _same_change(a, z, kind, stale)]
        compared += 1
        assert (mine["databaseName"], mine["schemaName"]) == (item["databaseName"], item["schemaName"])
        assert list(mine) == recorded["payload_fields"]
        assert list(mine["source"]) == recorded["source_fields"]
        reported = {k: v for k, v in mine["source"].items() if k not in (*PLACES, "table")}
        assert reported == {k: v for k, v in recorded["source"].items() if k != "table"}
    print(f"{kind}: {compared} statements")
    assert not problems, "\n".join(problems)
    assert compared >= 40


def _statements(kind: str) -> list[str]:
    return [s.strip() for s in (RECORDED / f"schema_changes_{kind}.sql").read_text().split("\n;\n") if s.strip()]


def _is_one_of(statement: str, told: list[str]) -> bool:
    """Check whether Debezium's texts are of this statement: it takes a RENAME of several tables apart."""
    if statement in told:
        return True
    return statement.startswith("RENAME TABLE") and all(t.removeprefix("RENAME TABLE ") in statement for t in told)


def test_schema_changes_of_a_snapshot_are_debeziums(streamed_connectors: tuple[str, Connector, Connector]) -> None:
    kind, _, read = streamed_connectors
    ours = {d["value"]["payload"]["tableChanges"][0]["id"]: d["value"]["payload"] for d in _documents(read, "p")}
    problems = []
    expected = _load_recording(kind)["snapshot"]
    for item in expected:
        (theirs,) = item["tableChanges"]
        mine = ours[theirs["id"]]
        assert mine["ddl"] == item["ddl"]
        assert mine["source"]["snapshot"] != "false"  # first and last depend on who reads what first
        (change,) = mine["tableChanges"]
        problems += [f"{theirs['id']}: {p}" for p in _same_change(theirs, change, kind)]
    print(f"{kind}: {len(expected)} tables")
    assert not problems, "\n".join(problems)
    assert len(expected) >= 40


def test_schemas_of_schema_changes_are_debeziums(streamed_connectors: tuple[str, Connector, Connector]) -> None:
    kind, streamed, read = streamed_connectors
    for document in (*_documents(streamed, "p"), *_documents(read, "p")):
        value = document["value"]["schema"]
        table = value["fields"][-1]["items"]["fields"][-1]
        assert table["fields"].pop()["field"] == "attributes"  # documented; the engine has none
        assert {"key": document["key"]["schema"], "value": value} == _load_recording(kind)["schemas"]


def test_transaction_records_are_debeziums(streamed_connectors: tuple[str, Connector, Connector]) -> None:
    kind, streamed, _ = streamed_connectors
    documents = _documents(streamed, "p.transaction")
    for document in documents:
        assert {side: document[side]["schema"] for side in ("key", "value")} == _load_recording(kind)[
            "transaction_schemas"
        ]
    payloads = [{k: v for k, v in d["value"]["payload"].items() if k not in ("id", "ts_ms")} for d in documents]
    # a TRUNCATE is a separate transaction to us, and none to Debezium
    of_rows = [
        p for p in payloads if p["data_collections"] is None or p["data_collections"][0]["data_collection"] == "inv.k1"
    ]
    assert of_rows[-4:] == _load_recording(kind)["transactions"]
