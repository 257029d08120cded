"""Names of tables and columns beyond ASCII, from the snapshot to the log: a Db2 in UTF-8 takes them in every statement."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from random import Random

from airflow_provider_cdc.core.config.topic_names import sanitize_name
from dev.servers.db2 import Db2
from tests.sources.db2_adapter import Db2Adapter
from tests.sources.suite import INT, TEXT, start_connector
from tests.support.pytest_runs.sampled import CaseSample

LETTERS = "aZ_ %.'éßıİΣςЖжא中한日Ⅷ😀𝔘\u0301"


def _name(random: Random, known: list[str]) -> str:
    """A name that is like no other one as a topic has it."""
    while True:
        name = "".join(random.choices(LETTERS, k=random.choice([1, 1, 2, 3, 9, 17]))).strip()
        if name and sanitize_name(name) not in map(sanitize_name, known):
            return name


def test_tables_and_columns_of_random_names_are_captured(db2: Db2, tmp_path: Path, sampled: CaseSample) -> None:
    """Tables with rows before the snapshot and after it, and columns that come and are renamed."""
    random = sampled.random("names of Db2")
    with ExitStack() as stack:
        db = Db2Adapter(db2, stack)
        columns = dict[str, list[str]]()
        for _ in range(12 if sampled.all else 4):
            table = _name(random, list(columns))
            key = _name(random, [])
            columns[table] = [key, _name(random, [key])]
            db.create(table, {key: INT, columns[table][1]: TEXT}, (key,))
            with db.transaction() as t:
                t.insert(table, {key: 1, columns[table][1]: f"{table} 1"})
        connector = start_connector(db, tmp_path)
        for table, (key, text) in columns.items():
            with db.transaction() as t:
                t.insert(table, {key: 2, text: f"{table} 2"})
                t.update(table, {key: 1}, {text: table})
            connector.capture()
            added, renamed = (_name(random, [key, text]) for _ in range(2))
            if sanitize_name(added) == sanitize_name(renamed):
                renamed += "é"
            db.add_column(table, added, TEXT)
            with db.transaction() as t:
                t.insert(table, {key: 3, text: f"{table} 3", added: added})
            connector.capture()
            db.rename_column(table, added, renamed, TEXT)
            with db.transaction() as t:
                t.insert(table, {key: 4, text: f"{table} 4", renamed: renamed})
            connector.capture()
        for table in columns:
            topic = sanitize_name(f"{db.namespace}.{table}")
            assert connector.rows(topic) == db.rows(table), (table, columns[table])
