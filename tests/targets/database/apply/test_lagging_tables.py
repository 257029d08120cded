"""Tables that are behind the others, and how they come to where the others are. Runs in any order: ``tests/cases/test_sink.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_cdc.core.model.table_schema import Column
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig
from airflow_provider_cdc.targets.database.progress.marker_table import MarkersChanged
from airflow_provider_cdc.targets.database.target_engine import open_engine
from tests.targets.database.apply.test_database_apply import sink
from tests.targets.database.source_table import Table


@pytest.mark.parametrize(("others", "own"), [(2, 1), (1, 0)], ids=["others", "own"])
def test_a_table_goes_on_with_the_others_only_if_no_other_run_has_moved_either(
    tmp_path: Path, others: int, own: int
) -> None:
    """A3: a table that is not behind any more has, by definition, the batch of the others; one between would never come."""
    engine = open_engine(DatabaseTargetConfig.parse({"connection.url": f"sqlite:///{tmp_path}/target.db"}))
    table = Table(tmp_path, engine, Column(name="v", type="int32"))
    table.insert({"id": 1, "v": 1})
    table.apply()
    apply = sink(engine, table.connector)
    markers = apply._markers
    with (
        engine.begin() as connection
    ):  # the table is at batch 1, and so are the others, when this run looks; then another run moves one of them
        markers.lock_and_read(connection)
        markers.store_lagging_table(connection, "p.s.t", own, "refused a row")
        markers.write(connection, others)
    with pytest.raises(MarkersChanged):
        apply._go_on("p.s.t", 1, of=1)
    with engine.begin() as connection:
        assert markers.read(connection).behind == {"p.s.t": own}
        markers.lock_and_read(connection)
        markers.store_lagging_table(connection, "p.s.t", others, "")
        markers.write(connection, others)
    apply._go_on("p.s.t", others, of=others)
    with engine.connect() as connection:
        assert markers.read(connection).behind == {}
    engine.dispose()
