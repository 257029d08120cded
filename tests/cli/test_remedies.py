"""Commands in the remedies of errors: a shell passes them on as they are meant, for all names of tables and connectors."""

from __future__ import annotations

import errno
import itertools
import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.files.manifest_number_search import BatchNumbers
from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.files.storage_errors import storage_error
from airflow_provider_cdc.changelog.files.truncation_marker import RemovedTopic, TruncationMarker
from airflow_provider_cdc.changelog.reading.partial_document_updates import LostDocument, refuse_lost
from airflow_provider_cdc.changelog.reading.pending_batches import PendingBatches
from airflow_provider_cdc.changelog.reading.table_start_batch import unbuildable_error
from airflow_provider_cdc.changelog.retention.retention_plan import RetentionHold
from airflow_provider_cdc.changelog.retention.target_progress import TargetProgress
from airflow_provider_cdc.connector import ConnectorDefinition, open_source, parse_config
from airflow_provider_cdc.core.capture.capture_remedies import how_to_read, with_command
from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.errors import CdcError, NotGranted, PositionLost
from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema
from airflow_provider_cdc.core.name_patterns import format_exact_pattern
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.core.signals.table_patterns import match_tables
from airflow_provider_cdc.operators.base.verify_result_and_repairs import result_of
from airflow_provider_cdc.sources.db2.asn.table_registrations import TableRegistration
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.log.connector_registrations import ConnectorRegistrations, change_table_gone
from airflow_provider_cdc.sources.db2.log_range import format_switch_commands
from airflow_provider_cdc.sources.db2.position import Db2Position
from airflow_provider_cdc.verify.table_repairs import build_repair
from airflow_provider_cdc.verify.verification_report import TableVerification, VerificationReport
from tests.support.airflow.command_line import parser

NAMES = [
    "plain", "CONNECTOR", "o'brien", 'a"b', "a`b", "$(x)", "${x}", " a b ", "two\nlines\n", "=x", "--replace", "-t", "ümlaut", "a\\b", "<n>", "x.y", "%s{0}",
    ".*", "\u202eturned", "!x", "~", "#", "&& rm", "*",
]  # fmt: skip
CONNECTORS = ["shop", "CONNECTOR", "it's $(x)\n`y`", "--x"]
OTHERS = [TableId(namespace="s", name=name) for name in ("other", "plain_", "xxxxx")]
COMMAND = re.compile(r"`(airflow (?:'[^']*'|\"[^\"]*\"|[^`'\"])*)`")
"""As the pages find commands in a text (``long.tsx``)."""
CONFIG = parse_config(ConnectorDefinition("shop", "memory", "/lake", {"memory.database": "x"}))


def schema(table: TableId, *, keyed: bool = True) -> TableSchema:
    return TableSchema(id=table, columns=(Column(name="id", type="int64"),), key=("id",) if keyed else ())


def remedies(connector: str, table: TableId) -> Iterator[str]:
    """Texts with commands, of every place that makes one with a table's name."""
    yield with_command(PositionLost("gone", remedy="wait"), connector) or ""
    yield with_command(NotGranted("no"), connector) or ""
    full = with_command(storage_error(OSError(errno.ENOSPC, "No space left"), "/lake"), connector) or ""
    assert full.count("airflow cdc maintain") == 1
    yield full
    yield f"`{how_to_read(connector, [schema(table)], Filters(CONFIG))}`"
    yield f"`{how_to_read(connector, [schema(table, keyed=False)], Filters(CONFIG))}`"
    mark = TruncationMarker(5, topics={"t": RemovedTopic(3, table)})
    for new, base in ((True, 0), (False, 0)):
        yield str(unbuildable_error(connector, mark, "t", 2, new=new, base=base, where="there"))
    yield RetentionHold(TargetProgress("delta", f"/lake/{table}", 1, 2), "", silent=True).format_text(connector)
    for keyed, at in ((True, ""), (False, ""), (False, f"/lake/{table}")):
        yield build_repair(connector, "t", schema(table, keyed=keyed), [], 3, at=at).advice
    registration = TableRegistration(table, "A", "B", b"", b"", "I", "", pairs=True, before_prefix=None)
    registry, position = ConnectorRegistrations(Tables(table), '"ASNCDC"', connector), Db2Position(b"\1")
    yield str(registry.registration_removed(table, position))
    registry.registered = {table: registration}
    yield catch_message(lambda: registry.check_registrations(position))
    yield str(change_table_gone(registration, "there", connector))
    yield format_switch_commands(Db2Config.parse(DB2).of_connector(connector), [table])


DB2 = {
    "database.hostname": "h",
    "database.user": "u",
    "database.password": "p",
    "database.dbname": "D",
    "topic.prefix": "p",
}


class Tables:
    """A single table, which is captured."""

    def __init__(self, table: TableId) -> None:
        self.table = table

    def find_schema(self, table: TableId) -> TableSchema | None:
        return schema(table)

    def is_captured(self, _: TableId) -> bool:
        return True

    def read_again(self, _: TableId) -> bool:
        return False

    def list_known_tables(self) -> list[TableId]:
        return [self.table]


def catch_message(act: Callable[[], object]) -> str:
    with pytest.raises(CdcError) as caught:
        act()
    return str(caught.value)


def commands(text: str) -> list[list[str]]:
    found = [shlex.split(command) for command in COMMAND.findall(text)]
    assert all(words[:2] == ["airflow", "cdc"] for words in found)
    return [words[2:] for words in found]


@pytest.mark.parametrize("connector", CONNECTORS)
@pytest.mark.parametrize("name", NAMES)
def test_commands_name_the_connector_and_the_table_whatever_they_are_called(connector: str, name: str) -> None:
    table, command_line = TableId(namespace="s", name=name), parser()
    for text in remedies(connector, table):
        assert commands(text), text
        for words in commands(text):
            read = command_line.parse_args(words)
            assert read.connector == connector
            assert getattr(read, "confirm", None) in (None, connector)
            if words[0] == "snapshot":
                assert match_tables(read.table, [*OTHERS, table]) == ([table], [])
            elif words[0] == "rebuild":
                assert read.table in ([str(table)], [f"/lake/{table}"])
            elif words[0] == "forget-target":
                assert read.location == f"/lake/{table}"
            elif words[0] == "db2":
                assert read.table == str(table)


@pytest.mark.parametrize("word", [*NAMES, *CONNECTORS])
def test_a_shell_reads_what_was_meant(word: str) -> None:
    line = format_cdc_command("rebuild", word, word, format_exact_pattern(word), location=word).replace(
        "airflow", "printf '%s\\0'", 1
    )
    _, *words = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True).stdout.split("\0")[:-1]
    read = parser().parse_args(words)
    assert (read.connector, read.table, read.location) == (word, [word, format_exact_pattern(word)], word)


def test_a_pattern_is_of_one_line_and_without_what_a_text_quotes_with() -> None:
    for name in NAMES:
        pattern = format_exact_pattern(name)
        assert re.fullmatch(pattern, name)
        assert not re.search(r"['\"`\s]", pattern)
        assert pattern.isprintable()
        assert not pattern.startswith("-")


@pytest.mark.parametrize("catalog", [None, "C"])
def test_a_pattern_is_of_the_tables_of_its_name_alone_wherever_its_dots_are(catalog: str | None) -> None:
    """MongoDB's ``shop.fs.files``, a database ``a.b`` of MySQL: among names that differ in one character, which a dot stands for as well."""
    words = ["".join(word) for length in (1, 2, 3) for word in itertools.product("ab.", repeat=length)]
    tables = [TableId(namespace=n, name=t, catalog=catalog) for n in words for t in words if len(n + t) < 5]
    for table in tables:
        found, missing = match_tables([format_exact_pattern(table)], tables)
        assert {str(t) for t in found} == {str(table)}
        assert not missing


def test_batches_that_are_gone_have_their_tables_read_again(tmp_path: Path) -> None:
    numbers, table = BatchNumbers(Storage(str(tmp_path)), "c"), TableId(namespace="s", name="it's")
    assert commands(str(numbers.removed_error(2, 4))) == [["snapshot", "c", ".*", "--replace"]]
    mark = TruncationMarker(4, topics={"t": RemovedTopic(3, table), "before": RemovedTopic(1, OTHERS[0])})
    (words,) = commands(f"`{numbers._read_again(mark, 2)}`")
    assert match_tables(parser().parse_args(words).table, [*OTHERS, table]) == ([table], [])


def test_documents_that_are_lost_are_read_by_their_keys() -> None:
    table = TableId(namespace="s", name="it's=$(x)")
    pending = PendingBatches("t", files=[("file:///lake/c-1/00/part", File("00/part"))], schemas={1: schema(table)})  # type: ignore[list-item]
    ((*words,),) = commands(str(refuse_lost({'"o\'b"': LostDocument(1, "why")}, pending, "lake")))
    read = parser().parse_args(words)
    pattern, _, condition = read.filter[0].partition("=")
    assert (read.connector, condition) == ("c-1", '{"id": "o\'b"}')
    assert match_tables([pattern], [*OTHERS, table]) == match_tables(read.table, [*OTHERS, table]) == ([table], [])


class File:
    """A stand-in for a pending file: its path is all that the error needs."""

    def __init__(self, path: str) -> None:
        self.path = path


def test_a_comparison_names_the_tables_that_differ() -> None:
    tables = [
        TableVerification("p.s.a", "/lake/a", missing=1),
        TableVerification("p.s.b", "/lake/it's", missing=1, name="p.s.b at b"),
        TableVerification("p.s.c", "/lake/c"),
    ]
    with pytest.raises(Exception, match="are not equal") as caught:
        result_of(VerificationReport("c", {}, tables, 1.0), "delta", ())
    rebuild, verify = commands(str(caught.value))
    assert rebuild == ["rebuild", "c", "p.s.a", "/lake/it's"]
    assert parser().parse_args(verify).repair


@pytest.mark.parametrize("change", ["deleted", "cut", "followed"])
def test_events_that_are_lost_with_a_file_are_passed_by_the_command_of_the_error(tmp_path: Path, change: str) -> None:
    folder = tmp_path / "it's $(x)"
    folder.mkdir()
    for name in ("1.jsonl", "it's 2.jsonl"):
        (folder / name).write_text('{"before": null}\n' * 3)
    definition = ConnectorDefinition(
        "files", "debezium", str(tmp_path), {"events.path": str(folder), "topic.prefix": "other"}
    )
    with open_source(definition) as source:
        position: Any = source.current_position()
        if change == "followed":
            (folder / "it's 3.jsonl").write_text("{}\n")
        if change == "cut":
            (folder / "it's 2.jsonl").write_text("{}\n")
        else:
            (folder / "it's 2.jsonl").unlink()
        with pytest.raises(PositionLost) as caught:
            source.verify_position(position)
        ((*words,),) = commands(str(caught.value))
        read = parser().parse_args(words)
        assert (words[:2], read.connector, read.confirm) == (["offset", "set"], "files", None)
        later = source.position_of(json.loads(read.to))
        source.verify_position(later)
        assert (str(later) == "it's 3.jsonl, line 0, byte 0") == (change == "followed")
