"""Connections of a target's engine through an SSH tunnel."""

from __future__ import annotations

import socket
from typing import Any, Final

import sqlalchemy as sa

from airflow_provider_cdc.core.errors import TargetUnavailable
from airflow_provider_cdc.core.ssh_tunnels import find_address

_PORTS: Final = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306, "oracle": 1521, "mssql": 1433, "db2": 50_000}


def use_ssh_tunnel(engine: sa.Engine, ssh_conn_id: str) -> None:
    """Let each connection of an engine go through the tunnel of an SSH connection, which is opened again after a break.

        >>> use_ssh_tunnel(engine, "bastion")

    psycopg and PyMySQL still compare certificates with the host of the URL. The other drivers know no more than the local end of the tunnel.
    """

    @sa.event.listens_for(engine, "do_connect")
    def connect(dialect: Any, record: Any, arguments: list[Any], settings: dict[str, Any]) -> Any:
        url = engine.url
        port = url.port or _PORTS[url.get_backend_name()]
        host, local_port = find_address(ssh_conn_id, url.host or "", port, unavailable=TargetUnavailable)
        if engine.driver == "psycopg":
            settings |= {"hostaddr": host, "port": local_port}
            return None
        if engine.driver == "pymysql":
            connection = dialect.dbapi.Connection(*arguments, **settings, defer_connect=True)
            local_end = socket.create_connection((host, local_port), connection.connect_timeout)
            local_end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.connect(local_end)
            return connection
        arguments[:], more = dialect.create_connect_args(url.set(host=host, port=local_port))
        settings |= more
        return None
