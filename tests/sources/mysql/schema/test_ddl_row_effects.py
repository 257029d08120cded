"""Changes of a column's definition: the reader of the log must know their effect on rows, which the server shows.

Both errors count: rows that have changed and are not read again are a silent loss, and a table that is read again for nothing may have a
terabyte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_provider_cdc.sources.mysql.schema.column_types import MAX_DECIMAL_DIGITS
from tests.support.pytest_runs.sampled import CaseSample
from tests.support.sources.mysql.mysql_alters import (
    KINDS,
    STRICT,
    Alteration,
    Alterations,
    generate_alterations,
    generate_new_columns,
)

DRAWN, LONG = 60, 2000
NEVER_NEEDLESS = {"integer", "decimal", "year", "bit", "time", "bytes"}
"""Families of types of which a definition says all; of texts, members and dates the values that there are decide."""


@pytest.fixture(params=["mariadb", "mysql97"])
def alterations(request: pytest.FixtureRequest) -> Iterator[Alterations]:
    server = request.getfixturevalue(request.param)
    with server.database() as database:
        alterations = Alterations(server, database.name)
        yield alterations
        alterations.close()


def _draw_alterations(
    sampled: CaseSample, found: Callable[..., Iterator[Any]], alterations: Alterations
) -> Iterator[Any]:
    cases = found(sampled.random(str(alterations.facts)), mariadb=alterations.facts.mariadb)
    for _ in range(LONG if sampled.all else DRAWN):
        yield next(cases)


def test_rows_that_an_alter_changes_are_read_again_and_others_are_not(
    alterations: Alterations, sampled: CaseSample
) -> None:
    lost, needless = [], []
    for one, values in _draw_alterations(sampled, generate_alterations, alterations):
        outcome = alterations.attempt(one, values)
        if outcome is None:
            continue
        if outcome.exact and not outcome.kept:
            lost.append((str(one), outcome.changed[:3]))
        family, _, other = one.kind.partition("-")
        if (
            family == other
            and family in NEVER_NEEDLESS
            and not one.beside
            and "AUTO_INCREMENT" not in one.how
            and not (one.old.startswith("LONGBLOB") and one.new.startswith("MEDIUMBLOB"))  # no value here is as long
            and not one.new.startswith("BINARY")  # pads values, of which there may be none here
            and _is_text(one.old) == _is_text(one.new)
            and outcome.kept
            and not outcome.exact
        ):
            needless.append(str(one))
    assert lost == []
    assert needless == []


def _is_text(declared: str) -> bool:
    """Return whether a DECIMAL has more digits than a number of the change log."""
    digits = re.match(r"DECIMAL\((\d+)", declared)
    return digits is not None and int(digits[1]) > MAX_DECIMAL_DIGITS


def test_the_value_that_rows_get_in_a_new_column_is_the_servers(alterations: Alterations, sampled: CaseSample) -> None:
    lost = []
    for one in _draw_alterations(sampled, generate_new_columns, alterations):
        outcome = alterations.attempt(one, ("1", "2"))
        if outcome is not None and outcome.exact and not outcome.kept:
            lost.append((str(one), outcome.changed[:3]))
    assert lost == []


KEPT = [
    ("YEAR", "YEAR(4)"),
    ("INT", "BIGINT"),
    ("SMALLINT UNSIGNED", "INT"),
    ("VARCHAR(20)", "VARCHAR(300)"),
    ("VARCHAR(20) CHARACTER SET latin1", "VARCHAR(20)"),
    ("VARCHAR(20) CHARACTER SET utf8mb3", "VARCHAR(20) CHARACTER SET utf8mb4"),
    ("TEXT CHARACTER SET utf8mb3", "TEXT CHARACTER SET utf8mb4"),
    ("TEXT", "MEDIUMTEXT"),
    ("CHAR(20)", "VARCHAR(20)"),
    ("ENUM('a','b')", "ENUM('a','b','ö')"),
    ("ENUM('a','b')", "ENUM('b','a')"),
    ("SET('a','b')", "SET('a','b','c')"),
    ("DECIMAL(5,2)", "DECIMAL(12,4)"),
    ("DATETIME", "DATETIME(6)"),
    ("BLOB", "LONGBLOB"),
    ("BINARY(3)", "VARBINARY(20)"),
    ("BIT(5)", "BIT(8)"),
    ("FLOAT", "DOUBLE"),
    ("DECIMAL(5,2) ZEROFILL", "DECIMAL(5,2) UNSIGNED"),
]


def test_common_changes_that_keep_all_values_read_nothing_again(alterations: Alterations) -> None:
    found = {}
    for old, new in KEPT:
        family = re.split(r"\W", old)[0]
        values = next(
            kind.values for kind in KINDS.values() if any(re.split(r"\W", t)[0] == family for t in kind.types)
        )
        for mode in ("", STRICT):
            outcome = alterations.attempt(Alteration("", old, new, mode, "CHANGE v w {v}"), values)
            assert outcome is not None, (old, new)
            found[old, new, mode] = outcome.kept, outcome.exact
    assert {case: said for case, said in found.items() if said != (True, True)} == {}


ADDED = (
    "BIT(1)", "BIT(1) NOT NULL", "BIT(1) NOT NULL DEFAULT b'1'", "TINYINT(1) NOT NULL DEFAULT 1", "INT NOT NULL", "BIGINT DEFAULT -5", "VARCHAR(20) NOT NULL",
    "VARCHAR(20) DEFAULT 'it''s'", "DECIMAL(5,2) NOT NULL DEFAULT 1.5", "DOUBLE DEFAULT 0.25", "DATE DEFAULT '2024-02-29'", "DATETIME NULL",
    "DATETIME DEFAULT '2024-02-29 12:00:00'", "TIMESTAMP NULL", "ENUM('a','b') NOT NULL", "SET('a','b') NOT NULL", "JSON", "TEXT", "YEAR NOT NULL",
)  # fmt: skip


def test_common_new_columns_read_nothing_again(alterations: Alterations) -> None:
    found = {}
    for new in ADDED:
        outcome = alterations.attempt(Alteration("", "INT", new, STRICT, "ADD added {v}"), ("1", "2"))
        assert outcome is not None, new
        found[new] = outcome.kept, outcome.exact
    assert {case: said for case, said in found.items() if said != (True, True)} == {}
