"""MariaDB."""

from pathlib import Path
from typing import Any, ClassVar, Self

from dev.servers.mysql_family import MySqlFamily
from dev.servers.process import ServerError, run_once

EDITIONS = {None: "mariadb", "11.8": "mariadb118"}


class MariaDb(MySqlFamily):
    """MariaDB as this machine has it (10.11 on Debian 12), or the private copy of ``edition="11.8"``."""

    kind = "mariadb"
    DEFAULTS: ClassVar[dict[str, Any]] = {
        "server_id": 1000,
        "log_bin": "binlog",
        "binlog_format": "ROW",
        "binlog_row_image": "FULL",
        "binlog_row_metadata": "FULL",
        "gtid_strict_mode": True,
        "character_set_server": "utf8mb4",
        "default_time_zone": "+00:00",
        "max_allowed_packet": "64M",
        "innodb_buffer_pool_size": "64M",
        "innodb_log_file_size": "32M",
        "innodb_flush_log_at_trx_commit": 2,
        "sync_binlog": 1,
        "skip_name_resolve": True,
    }

    def __init__(
        self,
        options: dict[str, Any] | None = None,
        *,
        edition: str | None = None,
        folder: Path | str | None = None,
        port: int | None = None,
    ) -> None:
        super().__init__(options, folder=folder, port=port)
        self.edition = edition

    def _program_name(self) -> str:
        return EDITIONS[self.edition]

    def _scratch(self, options: dict[str, Any], folder: Path) -> Self:
        return type(self)(options, edition=self.edition, folder=folder)

    def _initialize(self, scratch: Self) -> None:
        """Feed the server the SQL files it comes with. No anonymous user, no test database, root without a password."""
        share = self.installation.share
        (scratch.data / "mysql").mkdir(parents=True)
        script = "SET @auth_root_socket=NULL, @skip_auth_anonymous=1;\nUSE mysql;\n"
        for name in ("system_tables", "performance_tables", "system_tables_data"):
            script += _first_file(share, f"mariadb_{name}.sql", f"mysql_{name}.sql").read_text()
        script += _first_file(share, "maria_add_gis_sp_bootstrap.sql", "mariadb_gis_bootstrap.sql").read_text()
        options = [f"--innodb-log-file-size={self.DEFAULTS['innodb_log_file_size']}"]
        options += [
            f"--{name.replace('_', '-')}={value}" for name, value in scratch.options.items() if name in self.AT_CREATION
        ]
        command = [*self.installation.command, *scratch.base_arguments(), "--bootstrap", "--log-warnings=0", *options]
        run_once("making a data folder of MariaDB", command, self.installation.environment, input=script)


def _first_file(folder: Path, *names: str) -> Path:
    for name in names:
        if (folder / name).exists():
            return folder / name
    raise ServerError(f"MariaDB's SQL file {names[0]} is not in {folder}")
