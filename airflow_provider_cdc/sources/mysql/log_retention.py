"""The time for which a server keeps its binary log: by its own settings, or by those of Amazon RDS and Aurora, which ignore the server's."""

from __future__ import annotations

from collections.abc import Mapping

from pymysql.connections import Connection

from airflow_provider_cdc.core.model.log_headroom import LogRetention
from airflow_provider_cdc.core.spi.source import Finding
from airflow_provider_cdc.sources.mysql.connect import query_scalar

SHORT_S = 86_400
_VARIABLES = "SHOW GLOBAL VARIABLES WHERE variable_name IN ('binlog_expire_logs_seconds', 'expire_logs_days', 'binlog_expire_logs_auto_purge', 'basedir')"
_RDS_TABLE = (
    "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'mysql' AND table_name = 'rds_configuration'"
)
_RDS_HOURS = "SELECT value FROM mysql.rds_configuration WHERE name = 'binlog retention hours'"
_RDS_FOLDER = "/rdsdbbin"
_RDS = "binlog retention hours"
_RDS_REMEDY = f"CALL mysql.rds_set_configuration('{_RDS}', 168)"


def read_log_retention(connection: Connection) -> LogRetention | None:
    """Query how long the server, as it is set up now, keeps its log; ``None`` if it is RDS and the account may not see its setting."""
    if query_scalar(connection, _RDS_TABLE):
        hours = query_scalar(connection, _RDS_HOURS)
        return LogRetention(float(hours or 0) * 3600, f"{_RDS} of RDS: {'not set' if hours is None else hours}")
    with connection.cursor() as cursor:
        cursor.execute(_VARIABLES)
        variables = {str(name).lower(): str(value) for name, value in cursor.fetchall()}
    return None if variables.get("basedir", "").startswith(_RDS_FOLDER) else retention_of(variables)


def retention_of(variables: Mapping[str, str]) -> LogRetention:
    """Return how long a server with these variables keeps its log, unless it is one of RDS."""
    if variables.get("binlog_expire_logs_auto_purge", "").upper() == "OFF":
        return LogRetention(None, "binlog_expire_logs_auto_purge=OFF")
    seconds, days = (variables.get(name) or "0" for name in ("binlog_expire_logs_seconds", "expire_logs_days"))
    if not float(seconds) and float(days):
        return LogRetention(float(days) * 86_400, f"expire_logs_days={days}")
    return LogRetention(float(seconds) or None, f"binlog_expire_logs_seconds={seconds}")


def suggest_longer_retention(retention: LogRetention, seconds: float) -> str:
    """Return the statement that has the server keep its log longer."""
    return (
        _RDS_REMEDY if retention.setting.startswith(_RDS) else f"SET GLOBAL binlog_expire_logs_seconds = {seconds:.0f}"
    )


def check_log_retention(connection: Connection) -> list[Finding]:
    """Return a finding if the log is kept for less than a day."""
    retention = read_log_retention(connection)
    if retention is None or retention.seconds is None or retention.seconds >= SHORT_S:
        return []
    return [
        Finding(
            f"The binary log is kept for less than a day ({retention.setting}): a longer pause between two captures loses changes.",
            suggest_longer_retention(retention, 864_000),
            fatal=False,
        )
    ]
