"""Every line of the table of types, in every database: what the apply writes is equal, and the smallest change of any value is found and repaired."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from airflow_provider_cdc.targets.database.dialects import dialect_of
from airflow_provider_cdc.targets.database.schema.target_table import TargetTableName
from tests.targets.database.all_kinds import Case, cases
from tests.targets.database.apply.test_database_apply import sink
from tests.targets.database.source_table import ID, Table
from tests.targets.database.verify.test_verify_database import compare, only, opened, run, verified


def fill_cases(engine: sa.Engine, folder: Path, found: list[Case]) -> tuple[Table, int]:
    """A table with a column for each case, whose row number ``n`` has the ``n``-th value of each, from the beginning again where there are fewer; a row of NULLs; and how many others there are."""
    table, columns = Table(folder, engine), [case.column for case in found]
    table.alter(ID, *columns, key=("id", *(case.column.name for case in found if case.key)))
    number = 1 + max(len(case.values) for case in found)
    rows = [{c.column.name: c.values[n % len(c.values)] for c in found} for n in range(number)]
    nulls = {case.column.name: case.values[0] if case.key else None for case in found}
    table.insert(*({"id": n, **row} for n, row in enumerate((*rows, nulls))))
    table.apply()
    return table, number


def test_the_smallest_change_of_a_value_of_any_type_is_found_and_repaired(engine: sa.Engine, tmp_path: Path) -> None:
    dialect = dialect_of(engine)
    found = cases(dialect.name)
    table, number = fill_cases(engine, tmp_path, found)
    equal = verified(engine, table.connector)
    assert equal.exit_status == 0, equal.format_text()
    assert only(equal).target == number + 1

    full, id_ = (
        dialect.format_table_name(TargetTableName(dialect.fold_name("p_s_t"))),
        dialect.quote_name(dialect.fold_name("id")),
    )
    names = [dialect.fold_name(case.column.name) for case in found if not case.key]
    for n in range(number - 1):  # each row gets the values of the next one, which are the least different ones
        for name in map(dialect.quote_name, names):
            of_next = f"SELECT {name} FROM {full} WHERE {id_} = {n + 1}"
            if dialect.name in ("mysql", "mariadb"):
                of_next = f"SELECT {name} FROM ({of_next}) n"
            run(engine, f"UPDATE {full} SET {name} = ({of_next}) WHERE {id_} = {n}")
    run(
        engine,
        f"UPDATE {full} SET {', '.join(f'{dialect.quote_name(name)} = NULL' for name in names)} WHERE {id_} = {number - 1}",
    )
    with opened(table.connector) as verification:
        differing = compare(engine, table.connector, verification, keys=True)
        assert only(differing).differing == dict.fromkeys(names, number)
        assert verification.send(verification.build_repairs(differing.to_document()), "test").keys() == {"p.s.t"}
    table.connector.capture()
    sink(engine, table.connector).apply()
    equal = verified(engine, table.connector)
    assert equal.exit_status == 0, equal.format_text()
