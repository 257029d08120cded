"""MySQL."""

from pathlib import Path
from typing import Any, ClassVar, Self

from dev.servers.mysql_family import MySqlFamily, option_arguments
from dev.servers.process import run_once

EDITIONS = {"9.7": "mysql97", "8.0": "mysql80"}
REDO_LOG = {"9.7": {"innodb_redo_log_capacity": "32M"}, "8.0": {"innodb_log_file_size": "16M"}}
UNUSED_STATISTICS = [
    "performance_schema_digests_size",
    "performance_schema_error_size",
    "performance_schema_events_stages_history_long_size",
    "performance_schema_events_statements_history_long_size",
    "performance_schema_events_statements_history_size",
    "performance_schema_events_transactions_history_long_size",
    "performance_schema_events_waits_history_long_size",
    "performance_schema_max_statement_classes",
]
"""Sizes of tables of statistics that neither the product nor a test reads. Locks, threads and replication stay."""


class MySql(MySqlFamily):
    """MySQL of ``edition="9.7"`` (whatever Debian's unstable suite has now) or ``"8.0"`` (8.0.15)."""

    kind = "mysql"
    DEFAULTS: ClassVar[dict[str, Any]] = {
        "server_id": 1000,
        "log_bin": "binlog",
        "binlog_row_image": "FULL",
        "binlog_row_metadata": "FULL",
        "gtid_mode": True,
        "enforce_gtid_consistency": True,
        "character_set_server": "utf8mb4",
        "default_time_zone": "+00:00",
        "max_allowed_packet": "64M",
        "innodb_buffer_pool_size": "64M",
        "innodb_flush_log_at_trx_commit": 2,
        "sync_binlog": 1,  # as servers have it: what is in the log and not on the disk is not sent (MySQL)
        "skip_name_resolve": True,
        # from here on for memory, of which a server would take 100 to 200 MB more
        "max_connections": 100,
        "table_definition_cache": 400,
        "table_open_cache": 400,
        **dict.fromkeys(UNUSED_STATISTICS, 0),
        "mysqlx": False,
        "secure_file_priv": "NULL",
    }

    def __init__(
        self,
        options: dict[str, Any] | None = None,
        *,
        edition: str = "9.7",
        folder: Path | str | None = None,
        port: int | None = None,
    ) -> None:
        super().__init__({**REDO_LOG[edition], **(options or {})}, folder=folder, port=port)
        self.edition = edition

    def _program_name(self) -> str:
        return EDITIONS[self.edition]

    def _scratch(self, options: dict[str, Any], folder: Path) -> Self:
        return type(self)(
            {"gtid_mode": None, "enforce_gtid_consistency": None, **options}, edition=self.edition, folder=folder
        )

    def _initialize(self, scratch: Self) -> None:
        chosen = {
            name: value
            for name, value in scratch.options.items()
            if name in {*REDO_LOG[self.edition], *self.AT_CREATION}
        }
        command = [
            *self.installation.command,
            *scratch.base_arguments(),
            *option_arguments(chosen),
            "--secure-file-priv=NULL",
            "--initialize-insecure",
        ]
        run_once("making a data folder of MySQL", command, self.installation.environment)
