"""Marker tables of earlier releases get the columns for whose change log a batch is of."""

from __future__ import annotations

import sqlalchemy as sa

from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig
from airflow_provider_cdc.targets.database.progress.marker_table import ALL, DatabaseMarkers, MarkerTable
from airflow_provider_cdc.targets.database.target_engine import open_engine


def test_a_marker_table_of_an_earlier_release_goes_on_with_the_columns_that_it_lacks(url: str) -> None:
    """# A4: what it has stays; before an apply has added them, the marker can be read."""
    engine, markers = (
        open_engine(DatabaseTargetConfig.parse({"connection.url": url})),
        MarkerTable("cdc_applied", "shop"),
    )
    kept = [sa.Column(c.name, c.type, primary_key=c.primary_key, nullable=c.nullable) for c in markers._table.columns]
    old = sa.Table("cdc_applied", sa.MetaData(), *kept[:-2], quote=True)
    row = {"connector": "shop", "sink": ALL, "changed_at": "2024-01-01"}
    with engine.begin() as connection:
        old.create(connection)
        connection.execute(old.insert().values(**row, topic=ALL, batch=41))
        connection.execute(old.insert().values(**row, topic="p.s.t", batch=7))
    with engine.begin() as connection:
        nothing = {ALL: ("", ""), "p.s.t": ("", "")}
        assert markers.read(connection) == DatabaseMarkers(41, {"p.s.t": 7}, nothing)
    for _ in range(2):
        with engine.begin() as connection:
            markers.create_if_missing(connection)
    with engine.begin() as connection:
        assert markers.lock_and_read(connection) == DatabaseMarkers(41, {"p.s.t": 7}, nothing)
        markers.changelog = "abc"
        markers.write(connection, 41)
        assert markers.read(connection).logs == nothing
        markers.store_lagging_table(connection, "p.s.t", 8, "", "w1")
        markers.lock_and_read(connection)
        markers.write(connection, 42, "w2")
    with engine.begin() as connection:
        assert markers.read(connection) == DatabaseMarkers(
            42, {"p.s.t": 8}, {ALL: ("abc", "w2"), "p.s.t": ("abc", "w1")}
        )
    engine.dispose()
