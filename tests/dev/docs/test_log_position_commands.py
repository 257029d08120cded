"""Commands of pages about positions in a source's log, on a MariaDB: the log is purged, or begun again, and positions have the forms that pages show.

Each command is the one that the page has, with its position replaced by one of the server. In the end the tables equal the source.
"""

from __future__ import annotations

import json
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.operators.apply_to_database import ApplyToDatabaseOperator
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.services.dashboards.connector_alerts import format_alert, load_alerts
from airflow_provider_cdc.sources.mysql.log import gtid_continuity_check
from airflow_provider_cdc.state.state_store import StateStore
from dev.servers import MariaDb
from tests.cli.conftest import run
from tests.support.airflow.airflow_connector import connect, context
from tests.support.docs.page_commands import list_commands, split_words
from tests.support.patience import LONGEST_S, wait_until
from tests.support.sources.mysql.mysql_server import end_log_readers, purge_log

Rows = list[tuple[int, str]]


@pytest.fixture(scope="module")
def server(mariadb_factory: Callable[..., MariaDb]) -> MariaDb:
    """A server whose log is purged and reset."""
    return mariadb_factory()


@dataclass
class PageShop:
    """The connector of the pages on a server, with a table of a SQLite database as its target."""

    server: MariaDb
    folder: Path
    definition: ConnectorDefinition
    store: StateStore
    capsys: pytest.CaptureFixture[str]

    def write(self, *statements: str) -> None:
        self.server.sql(*statements, database="shop")

    def build_task(self, **options: Any) -> CaptureOperator:
        return CaptureOperator(task_id="capture", definition=self.definition, conn_id="shop", **options)

    def capture(self) -> int:
        """Run the capture, and return how many events it has captured."""
        return int(self.build_task().execute(context())["events"])

    def apply(self) -> Rows:
        """Run the apply, and return the rows of the target."""
        ApplyToDatabaseOperator(task_id="apply", definition=self.definition, conn_id="warehouse").execute(context())
        with closing(sqlite3.connect(self.folder / "warehouse.db")) as connection:
            return connection.execute("SELECT id, note FROM shop_shop_orders ORDER BY id").fetchall()

    def read_source(self) -> Rows:
        return self.server.sql("SELECT id, note FROM shop.orders ORDER BY id")

    def find_end(self) -> dict[str, Any]:
        """Find the end of the log, by file and offset, as ``SHOW MASTER STATUS`` has it."""
        file, pos, *_ = self.server.sql("SHOW MASTER STATUS")[0]
        return {"file": file, "pos": int(pos)}

    def read_offset(self) -> dict[str, Any]:
        """Read the position that ``airflow cdc offset show shop`` prints."""
        _, text = self.type("docs/run/lifecycle.md", "offset show shop")
        return dict(json.loads(text)["offset"]["position"])

    def type(self, page: str, begin: str, *more: str, position: Any = None) -> tuple[int | str | None, str]:
        """Run the command of a page that begins so; return its exit status, and what it prints with the text of its error.

        :param position: the JSON of the command, and the number of a version, become this
        """
        command = next(one.text for one in list_commands(page) if one.text.startswith(f"airflow cdc {begin}"))
        words = split_words(command)[2:]
        if position is not None:
            given = position if isinstance(position, str) else json.dumps(position)
            words = [given if re.fullmatch(r"\{.*\}|\d+", word) else word for word in words]
        return self.run(*words, *more)

    def run(self, *words: str) -> tuple[int | str | None, str]:
        self.capsys.readouterr()
        status: int | str | None = 0
        try:
            run(*words)
        except SystemExit as e:
            status = e.code
        printed = self.capsys.readouterr().out
        return status, f"{printed}{status}" if isinstance(status, str) else printed


@pytest.fixture
def shop(
    server: MariaDb, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[PageShop]:
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "")  # commands set it; it is put back afterwards
    state = f"sqlite:///{tmp_path}/state.db"
    store = StateStore(state, lease_ttl_s=5)
    store.create_tables()
    place = {"host": server.host, "port": server.port, "login": server.user, "password": server.password}
    extra = json.dumps({"database.ssl.mode": "disabled"})
    connect(monkeypatch, "shop", conn_type="cdc_mariadb", extra=extra, **place)
    connect(monkeypatch, "cdc_state_default", conn_type="cdc_state", password=state)
    connect(monkeypatch, "warehouse", conn_type="sqlite", host=f"{tmp_path}/warehouse.db")
    properties = {"database.server.id": 4711, "database.include.list": "shop", "poll.interval.ms": 10}
    definition = ConnectorDefinition("shop", "mariadb", f"{tmp_path}/changelog", properties)
    server.sql("CREATE DATABASE shop", "CREATE TABLE shop.orders (id INT PRIMARY KEY, note VARCHAR(20))")
    made = PageShop(server, tmp_path, definition, store, capsys)
    made.write("INSERT INTO orders VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    yield made
    server.sql("DROP DATABASE shop")
    store.close()


def reset_log(server: MariaDb) -> None:
    """Begin the log again, under the same server id and the same names of files."""
    time.sleep(1.1)  # a file has the second of its creation
    end_log_readers(server)
    server.sql("RESET MASTER")


# -- a lost position ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("repair", ["snapshot", "incremental", "skip"])
@pytest.mark.parametrize("lose", [purge_log, reset_log], ids=["purged", "begun again"])
def test_a_lost_position_is_shown_and_repaired_as_the_pages_say(
    shop: PageShop, monkeypatch: pytest.MonkeyPatch, lose: Callable[[Any], None], repair: str
) -> None:
    monkeypatch.setattr(gtid_continuity_check, "PATIENCE_S", 0.5)  # no replica is to catch up
    shop.capture()
    assert shop.apply() == shop.read_source()
    lost = shop.read_offset()
    shop.write("UPDATE orders SET note = 'lost' WHERE id = 1", "DELETE FROM orders WHERE id = 2")
    shop.write("INSERT INTO orders VALUES (4, 'lost')")
    lose(shop.server)
    shop.write("INSERT INTO orders VALUES (5, 'kept')")
    with pytest.raises(Exception, match=r"(?s)^PositionLost: .*`airflow cdc gap shop`"):
        shop.capture()

    status, output = shop.type("docs/on-call.md", "status shop")
    assert status == 1
    assert "PositionLost: " in output
    for page in ("docs/on-call.md", "docs/errors/PositionLost.md", "docs/fix/gap.md"):
        status, output = shop.type(page, "gap shop")
        assert status == 1
        between = re.search(
            r"Lost: all changes committed after (\S+) .* and before (\S+?)[ ,].* oldest position", output
        )
        assert between is not None, output
        assert between[1] == f"{lost['file']}:{lost['pos']}"
        assert between[2].startswith(str(shop.server.sql("SHOW BINARY LOGS")[0][0]))
        assert ("the log was reset" in output) == (lose is reset_log)
    commands = dict(re.findall(r"^  airflow cdc (gap shop --repair (\w+)) ", output, re.MULTILINE))
    commands = {repair: command for command, repair in commands.items()}
    assert sorted(commands) == ["incremental", "skip", "snapshot"]

    before = shop.read_offset()
    status, output = shop.run(*commands[repair].split())
    assert status == 0
    assert "Nothing was changed. To make the change, add --confirm shop" in output
    assert shop.read_offset() == before
    status, output = shop.run(*commands[repair].split(), "--confirm", "shop")
    assert status == 0, output
    assert f"Repaired by {repair}." in output

    shop.capture()
    stale = [(1, "a"), (2, "b"), (3, "c"), (5, "kept")]
    assert shop.apply() == (stale if repair == "skip" else shop.read_source())
    assert shop.type("docs/fix/gap.md", "gap shop") == (0, "No gap: the log contains the position of shop.\n")
    shop.write("UPDATE orders SET note = 'new'", "DELETE FROM orders WHERE id = 3")
    shop.capture()
    stale = [(2, "b")] if repair == "skip" else []  # its delete is lost
    assert shop.apply() == sorted([*shop.read_source(), *stale])
    assert shop.type("docs/errors/PositionLost.md", "status shop")[0] == 0


def test_the_time_when_the_log_ends_is_shown_with_the_setting_that_decides_it(shop: PageShop) -> None:
    page = "docs/alerts/LogEnds.md"
    shop.server.sql("SET GLOBAL binlog_expire_logs_seconds = 3600")
    shop.capture()
    shop.write("INSERT INTO orders VALUES (4, 'd')")
    shop.capture()
    (alert,) = load_alerts(shop.store, now=datetime.now(UTC))
    assert re.search(r"removes the log at its position in 59 min: .* \[LogEnds\]", format_alert(alert))
    status, output = shop.type(page, "status shop")
    assert status == 0
    assert re.search(r"  Source log: .*removed at the position in 59 min\n", output)
    assert re.search(r"keeps its log for .+ \(binlog_expire_logs_seconds=3600\)", shop.type(page, "check shop")[1])
    text = Path(page).read_text()
    longer = re.search(r"`(SET GLOBAL binlog_expire_logs_seconds = \d+)`", text)
    assert longer is not None
    shop.server.sql(longer[1])
    assert "keeps its log for 10 d (binlog_expire_logs_seconds=864000)" in shop.type(page, "check shop")[1]


# -- an offset that is moved -------------------------------------------------------------------------------------------

FORMS: dict[str, Callable[[PageShop], dict[str, Any]]] = {
    "file and position": lambda shop: shop.find_end(),
    "GTIDs": lambda shop: {"gtid_set": shop.server.sql("SELECT @@gtid_binlog_pos")[0][0]},
}
"""The end of the log, in each form that pages have."""
LIFECYCLE = "docs/run/lifecycle.md"


@pytest.mark.parametrize("form", FORMS)
def test_an_offset_is_moved_back_and_forth_and_restored(shop: PageShop, form: str) -> None:
    shop.capture()
    start = FORMS[form](shop)
    shop.write("INSERT INTO orders VALUES (4, 'd')", "DELETE FROM orders WHERE id = 1")
    assert shop.capture() == 2
    shop.write("UPDATE orders SET note = 'x' WHERE id = 4")
    assert shop.capture() == 1
    assert shop.apply() == shop.read_source()

    now = shop.read_offset()
    status, output = shop.type(LIFECYCLE, "offset set", position=start)
    assert (status, "(repeat)" in output) == (0, True)
    assert "These are at most 3 events, in the last 2 batches." in output
    assert "Nothing was changed. To make the change, add --confirm shop" in output
    assert shop.read_offset() == now
    status, output = shop.type(LIFECYCLE, "offset set", "--confirm", "shop", position=start)
    assert (status, "Done: the offset is now at version" in output) == (0, True)
    assert shop.capture() == 3
    assert shop.apply() == shop.read_source()

    shop.write("INSERT INTO orders VALUES (6, 'skipped')")
    version = str(shop.store.offset_history("shop")[0].version)
    status, output = shop.type(LIFECYCLE, "offset set", "--confirm", "shop", position=FORMS[form](shop))
    assert (status, "SKIPPED: " in output) == (0, True)
    assert shop.capture() == 0
    assert (6, "skipped") not in shop.apply()
    status, output = shop.type(LIFECYCLE, "offset history shop")
    assert (status, "set to " in output) == (0, True)
    status, output = shop.type(LIFECYCLE, "offset restore", "--confirm", "shop", position=version)
    assert (status, "REPEATED: " in output) == (0, True)
    assert shop.capture() == 1
    assert shop.apply() == shop.read_source()


def test_an_offset_that_is_reset_reads_all_tables_again(shop: PageShop) -> None:
    shop.capture()
    shop.apply()
    shop.server.sql("SET sql_log_bin = 0", "DELETE FROM shop.orders WHERE id = 1")
    status, output = shop.type(LIFECYCLE, "offset reset shop", "--confirm", "shop")
    assert (status, "(snapshot)" in output) == (0, True)
    shop.capture()
    assert shop.apply() == shop.read_source()


def test_a_position_that_the_log_does_not_hold_is_refused(shop: PageShop) -> None:
    shop.capture()
    first, end = shop.find_end(), shop.find_end()
    shop.write("INSERT INTO orders VALUES (4, 'd')")
    middle = {**end, "pos": end["pos"] + 1}
    wrong = {"gtid_set": "0-1000-999999"}
    shop.capture()
    purge_log(shop.server)
    last = shop.find_end()
    before = shop.read_offset()
    for position in (first, {**last, "pos": 99_999_999}, {**last, "file": "binlog.999999"}, middle, wrong):
        status, output = shop.type(LIFECYCLE, "offset set", "--confirm", "shop", position=position)
        assert isinstance(status, str), (position, output)
        assert re.search(r"The change is not possible|ConfigError: The position", status), (position, status)
        assert shop.read_offset() == before
    assert shop.capture() == 0
    assert shop.apply() == shop.read_source()


def test_a_move_back_across_a_ddl_statement_is_refused(shop: PageShop) -> None:
    shop.capture()
    start = shop.find_end()
    shop.write("ALTER TABLE orders ADD COLUMN more INT", "INSERT INTO orders VALUES (4, 'd', 1)")
    shop.capture()
    _, output = shop.type(LIFECYCLE, "offset set", "--confirm", "shop", position=start)
    assert "The change is not possible; nothing was changed." in output
    assert "The structure of shop.orders was changed in between" in output
    assert shop.apply() == shop.read_source()


def test_an_active_run_is_named_and_a_pause_makes_way(shop: PageShop) -> None:
    shop.capture()
    start = shop.find_end()
    shop.write("INSERT INTO orders VALUES (4, 'd')")
    shop.capture()
    task = shop.build_task(run_for=LONGEST_S)
    thread = threading.Thread(target=task.execute, args=(context(),))
    thread.start()
    try:
        owner = wait_until(
            lambda: (record := shop.store.find_connector("shop")) and record.owner, "the run has the lease"
        )
        _, output = shop.type(LIFECYCLE, "offset set", "--confirm", "shop", position=start)
        assert f"LeaseHeld: Connector shop is being captured by {owner}." in output
        assert "airflow cdc pause shop --wait" in output
        shop.run("pause", "shop", "--wait")
    finally:
        task.on_kill()
        thread.join()
    status, output = shop.type(LIFECYCLE, "offset set", "--confirm", "shop", position=start)
    assert status == 0, output
    shop.run("resume", "shop")
    assert shop.capture() == 1
    assert shop.apply() == shop.read_source()


def test_a_change_log_begins_at_the_offset_of_debezium(shop: PageShop) -> None:
    page = "docs/compare/from-debezium.md"
    shop.definition = replace(shop.definition, properties={**shop.definition.properties, "snapshot.mode": "no_data"})
    offset = shop.find_end()
    shop.write("INSERT INTO orders VALUES (4, 'd')", "UPDATE orders SET note = 'z' WHERE id = 1")
    assert shop.capture() == 0
    shop.run("pause", "shop")
    assert "(repeat)" in shop.type(page, "offset set", position=offset)[1]
    status, output = shop.type(page, "offset set", "--confirm", "shop", position=offset)
    assert status == 0, output
    shop.run("resume", "shop")
    assert shop.capture() == 2
    _, text = shop.run("events", "shop")
    values = [json.loads(line)["value"] for line in text.splitlines()]
    assert [one["after"]["id"] for one in values if "after" in one] == [4, 1]
