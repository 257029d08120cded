"""The address that a connection to a database opens: the server's own, or the local end of a tunnel through a bastion.

The tunnels are made by Airflow's SSH connections, which sources and targets do not know: :mod:`airflow_provider_cdc.hooks.ssh_tunnel` registers
itself here. This module is imported at DAG parse: it must stay light.
"""

from __future__ import annotations

from typing import Protocol

from airflow_provider_cdc.core.errors import ConfigError, TransientError


class TunnelOpener(Protocol):
    """Opens tunnels, and returns their local ends."""

    def __call__(
        self, ssh_conn_id: str, host: str, port: int, *, unavailable: type[TransientError]
    ) -> tuple[str, int]: ...


_openers: list[TunnelOpener] = []


def register_tunnel_opener(opener: TunnelOpener) -> None:
    """Let an opener make all tunnels of this process from now on."""
    _openers[:] = [opener]


def find_address(
    ssh_conn_id: str | None, host: str, port: int, *, unavailable: type[TransientError]
) -> tuple[str, int]:
    """Return the host and port to connect to.

        >>> find_address(None, "db", 3306, unavailable=SourceUnavailable)
        ('db', 3306)

    Call it for each connection: it opens the tunnel again after a break.

    :param ssh_conn_id: Airflow's connection to the bastion; ``None``: the database is reached directly
    :param unavailable: error if the bastion or the database behind it does not answer
    :raises ConfigError: the connection to the bastion cannot be used, or there is no Airflow
    :raises PrerequisiteError: the bastion's host key is not the known one
    :raises AccessDenied: the bastion rejects the account
    """
    if ssh_conn_id is None:
        return host, port
    if not _openers:
        raise ConfigError(
            f"The database {host}:{port} is reached by the SSH connection {ssh_conn_id}, which is one of Airflow's, and this process has none.",
            safe="Nothing was read or written.",
            remedy=f"outside of Airflow, open a tunnel with `ssh -N -L 127.0.0.1:LOCAL_PORT:{host}:{port} BASTION`, and connect to its local port",
        )
    return _openers[0](ssh_conn_id, host, port, unavailable=unavailable)
