"""The story of a row of MariaDB, end to end: positions, transactions, a key of two columns, and the row at the source."""

from __future__ import annotations

import re
import time
from functools import partial
from itertools import dropwhile
from pathlib import Path

from airflow_provider_cdc.changelog.row_history.key_event_reader import KeyEventReader
from airflow_provider_cdc.changelog.row_history.row_history_models import RowChange, RowHistory
from airflow_provider_cdc.changelog.row_history.row_history_reader import RowHistoryReader
from airflow_provider_cdc.changelog.row_history.row_key import key_of_texts
from airflow_provider_cdc.cli.row import format_row_history
from airflow_provider_cdc.core.model.table_schema import TableId
from dev import paths
from dev.servers import Database
from tests.support.connectors import Connector, mysql_connector

KEY = (("id", "int32"), ("region", "string"))


def _read_row_history(connector: Connector, table: TableId, *key: str) -> RowHistory:
    events = KeyEventReader(connector.changelog, connector.name, time.monotonic() + 60)
    stories = RowHistoryReader(events, connector.name, partial(connector.store.schema_changes_of, connector.name))
    (columns,) = set(events.list_key_columns()[table.full_name][max(events.list_key_columns()[table.full_name])])
    assert columns == KEY
    return stories.read_history(table, key_of_texts(key, columns, str(table)))


def _before_it_was_read_again(story: RowHistory) -> list[RowChange]:
    """The connector may have read the table again under its new name: it is emptied, and its rows are read."""
    return list(dropwhile(lambda change: change.snapshot is not None, story.changes))


def test_the_story_of_a_row_of_mariadb(database: Database, tmp_path: Path) -> None:
    database.sql(
        "CREATE TABLE items (id INT, region VARCHAR(5), price DECIMAL(8, 2), note TEXT, at DATETIME(6), PRIMARY KEY (id, region))",
        "INSERT INTO items VALUES (7, 'eu', 1.50, 'one', '2024-02-29 12:00:00.000001'), (7, 'us', 9, 'other', NULL)",
    )
    connector = mysql_connector(
        database.server, tmp_path, database_include_list=database.name, provide_transaction_metadata=True
    )
    connector.capture()
    database.sql(
        "UPDATE items SET price = 2 WHERE id = 7 AND region = 'eu'",
        "ALTER TABLE items RENAME COLUMN note TO remark",
        "RENAME TABLE items TO goods",
        "UPDATE goods SET region = 'uk', remark = 'two' WHERE id = 7 AND region = 'eu'",
        "DELETE FROM goods WHERE region = 'us'",
    )
    connector.capture()
    table = TableId(namespace=database.name, name="goods")
    story = _read_row_history(connector, table, "7", "uk")
    changes = _before_it_was_read_again(story)
    assert [change.operation for change in changes] == [
        "key change",
        "schema change",
        "schema change",
        "update",
        "read",
    ]
    moved, renamed_table, renamed_column, updated, read = changes
    assert moved.previous_key == {"id": 7, "region": "eu"}
    assert moved.changed == ["region", "remark"]
    assert moved.transaction is not None
    assert {"file", "pos"} <= set(moved.position)
    assert "RENAME TABLE" in (renamed_table.statement or "")
    assert "remark" in (renamed_column.statement or "")
    assert (updated.changed, updated.table) == (["price"], f"{database.name}.items")
    assert read.after == {"id": 7, "region": "eu", "price": "1.50", "note": "one", "at": "2024-02-29T12:00:00.000001"}
    assert story.row.row == {
        "id": 7,
        "region": "uk",
        "price": "2.00",
        "remark": "two",
        "at": "2024-02-29T12:00:00.000001",
    }
    gone = _read_row_history(connector, table, "7", "us")
    assert [change.operation for change in _before_it_was_read_again(gone)] == [
        "delete",
        "schema change",
        "schema change",
        "read",
    ]
    assert gone.row.state == "no row"


def test_the_story_goes_on_under_the_primary_key_before(database: Database, tmp_path: Path) -> None:
    database.sql(
        "CREATE TABLE items (id INT PRIMARY KEY, region VARCHAR(5) NOT NULL, note TEXT)",
        "INSERT INTO items VALUES (7, 'eu', 'one'), (8, 'eu', 'other')",
    )
    connector = mysql_connector(database.server, tmp_path, database_include_list=database.name)
    connector.capture()
    database.sql(
        "UPDATE items SET note = 'two' WHERE id = 7",
        "ALTER TABLE items DROP PRIMARY KEY, ADD PRIMARY KEY (id, region)",
        "UPDATE items SET note = 'three' WHERE id = 7",
    )
    connector.capture()
    story = _read_row_history(connector, TableId(namespace=database.name, name="items"), "7", "eu")
    reported = [(change.operation, (change.after or {}).get("note")) for change in story.changes]
    assert reported == [("update", "three"), ("schema change", None), ("update", "two"), ("read", "one")]


VOLATILE = {
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00": "TIME", r"file [^,]+": "FILE", r"pos \d+": "POS", r"server_id \d+": "SERVER",
    r"gtid [^,]+": "GTID", r'transaction [^,;]+, event': "TRANSACTION, event", r"thread \d+": "THREAD", " +$": "",
}  # fmt: skip
"""What is another one in each run."""


def _mask_volatile(text: str) -> str:
    for pattern, word in VOLATILE.items():
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return text


def test_the_story_in_the_docs_is_what_the_command_says(database: Database, tmp_path: Path) -> None:
    database.sql("CREATE TABLE orders (id INT PRIMARY KEY, note TEXT, price DECIMAL(8, 2))")
    given = {"database_include_list": database.name, "provide_transaction_metadata": True}
    connector = mysql_connector(database.server, tmp_path, **given)
    connector.capture()
    for statement in (
        "INSERT INTO orders VALUES (1, 'one', 9.50)",
        "UPDATE orders SET note = 'two' WHERE id = 1",
        "UPDATE orders SET id = 7 WHERE id = 1",
    ):
        database.sql(statement)
        connector.capture()
    table, columns = TableId(namespace=database.name, name="orders"), (("id", "int32"),)
    events = KeyEventReader(connector.changelog, connector.name, time.monotonic() + 60)
    history = partial(connector.store.schema_changes_of, connector.name)
    story = RowHistoryReader(events, connector.name, history).read_history(
        table, key_of_texts(["7"], columns, str(table))
    )
    text = (
        "\n".join(format_row_history(story))
        .replace(database.name, "inventory")
        .replace(f"({connector.name})", "(shop)")
    )
    (shown,) = re.findall(
        r"\$ airflow cdc row inventory\.orders 7\n(.*?)\n```",
        Path(paths.ROOT, "docs/fix/row-history.md").read_text(),
        re.DOTALL,
    )
    assert _mask_volatile(shown) == _mask_volatile(text)
