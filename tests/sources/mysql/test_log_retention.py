"""The time for which a server keeps its log: its own settings, and those of Amazon RDS."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_cdc.core.model.log_headroom import LogRetention
from airflow_provider_cdc.sources.mysql.log_retention import retention_of
from tests.sources.mysql.test_metrics import source_of

SECONDS, DAYS, PURGE = "binlog_expire_logs_seconds", "expire_logs_days", "binlog_expire_logs_auto_purge"


@pytest.mark.parametrize(
    ("variables", "expected", "text"),
    [
        ({SECONDS: "864000", DAYS: "0"}, LogRetention(864_000, f"{SECONDS}=864000"), "keeps its log for 10 d ("),
        ({SECONDS: "0", DAYS: "2"}, LogRetention(172_800, f"{DAYS}=2"), "keeps its log for 2 d ("),
        ({DAYS: "0.5"}, LogRetention(43_200, f"{DAYS}=0.5"), "keeps its log for 12 h ("),
        ({SECONDS: "0"}, LogRetention(None, f"{SECONDS}=0"), "never removes its log ("),
        ({SECONDS: "60", PURGE: "OFF"}, LogRetention(None, f"{PURGE}=OFF"), "never removes its log ("),
        ({SECONDS: "0", DAYS: "0"}, LogRetention(None, f"{SECONDS}=0"), "never removes its log ("),
        ({SECONDS: "60"}, LogRetention(60, f"{SECONDS}=60"), "keeps its log for 60 s ("),
    ],
)
def test_a_servers_own_settings_say_how_long_the_log_is_kept(
    variables: dict[str, str], expected: LogRetention, text: str
) -> None:
    assert retention_of(variables) == expected
    assert text in expected.format_text()


@pytest.mark.parametrize(
    ("value", "seconds", "setting"),
    [
        ("NULL", 0.0, "binlog retention hours of RDS: not set"),
        ("'168'", 604_800.0, "binlog retention hours of RDS: 168"),
    ],
)
def test_rds_ignores_the_servers_setting_and_has_its_own(
    mariadb: Any, value: str, seconds: float, setting: str
) -> None:
    """The server is a real one, with the table that RDS has."""
    mariadb.sql(
        "CREATE OR REPLACE TABLE mysql.rds_configuration (name VARCHAR(100), value VARCHAR(100), description VARCHAR(300))",
        f"INSERT INTO mysql.rds_configuration VALUES ('binlog retention hours', {value}, '')",
    )
    try:
        with source_of(mariadb) as source:
            assert source.find_log_retention() == LogRetention(seconds, setting)
            found = [finding for finding in source.check_prerequisites() if "less than a day" in finding.problem]
            assert [finding.fix for finding in found] == (
                [] if seconds else ["CALL mysql.rds_set_configuration('binlog retention hours', 168)"]
            )
            gone_at_s = source.log_window(source.current_position()).gone_at_s
            assert gone_at_s is not None
    finally:
        mariadb.sql("DROP TABLE mysql.rds_configuration")
