"""Airflow's hook of an SSH connection, and its errors as errors of this project: each names the cause and its repair."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_cdc.core.errors import AccessDenied, CdcError, ConfigError, PrerequisiteError, TransientError
from airflow_provider_cdc.hooks.connection_extra import extra_of
from airflow_provider_cdc.hooks.connection_lookup import load_connection

if TYPE_CHECKING:
    from airflow.providers.ssh.hooks.ssh import SSHHook

_SAFE: Final = "No login of the database was sent, and nothing was read or written."
_PROHIBITED: Final = 1
"""Code of a channel that the SSH server does not allow."""
_HOST_KEY: Final = (
    "put the line of `ssh-keyscan -p {port} -t ed25519 {host}` without the host name into the extra of the connection as host_key, after comparing it with "
    "`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the bastion; or add it to ~/.ssh/known_hosts of the workers"
)


def build_hook(ssh_conn_id: str) -> SSHHook:
    """Build the hook of an SSH connection, which has not connected yet.

    :raises ConnectionUnavailable: Airflow could not look up the connection
    :raises ConfigError: the provider is not installed, there is no such connection, or a field of it cannot be used
    :raises PrerequisiteError: the connection would accept any host key although it does not say so
    """
    from airflow_provider_cdc.hooks.airflow_compat import AirflowException, AirflowNotFoundException

    try:
        from airflow.providers.ssh.hooks.ssh import SSHHook
    except ImportError as e:
        raise ConfigError(
            f"Airflow's SSH provider, which the connection {ssh_conn_id} needs, is not installed: {e}",
            safe=_SAFE,
            remedy="in the environment of Airflow's workers: pip install 'airflow-provider-cdc[ssh]'",
        ) from e
    try:
        extra = extra_of(load_connection(ssh_conn_id), "correct the extra of the connection")
        hook = SSHHook(ssh_conn_id)
    except AirflowNotFoundException:
        raise ConfigError(
            f"Connection {ssh_conn_id}, which ssh_conn_id names, does not exist.",
            safe=_SAFE,
            remedy="create it in Airflow under Admin, Connections, with the type SSH, or correct ssh_conn_id",
        ) from None
    except (AirflowException, ValueError) as e:
        raise ConfigError(
            f"The SSH connection {ssh_conn_id} cannot be used: {e}",
            safe=_SAFE,
            remedy="correct its fields in Airflow under Admin, Connections",
        ) from e
    if hook.no_host_key_check and "no_host_key_check" not in extra:  # the default of older releases of the provider
        raise PrerequisiteError(
            f"The SSH connection {ssh_conn_id} has no host key: any server could pass for the bastion.",
            where=_bastion(hook),
            safe=_SAFE,
            remedy=_HOST_KEY.format(host=hook.remote_host, port=hook.port),
        )
    return hook


def build_connect_error(error: Exception, ssh_conn_id: str, hook: Any, unavailable: type[TransientError]) -> CdcError:
    """Build the error for a bastion that could not be connected to.

    :param unavailable: class of the error if the bastion does not answer
    """
    import paramiko

    where = _bastion(hook)
    if isinstance(error, paramiko.BadHostKeyException):
        return PrerequisiteError(
            f"The SSH server has another host key than the one that is known for {ssh_conn_id}: {error.key.get_name()} "
            f"{error.key.fingerprint} instead of {error.expected_key.get_name()} {error.expected_key.fingerprint}. It may be another server.",
            where=where,
            safe=_SAFE,
            remedy=f"if the bastion was replaced: {_HOST_KEY.format(host=hook.remote_host, port=hook.port)}",
        )
    if isinstance(error, paramiko.SSHException) and "known_hosts" in str(error):
        return PrerequisiteError(
            f"The host key of the SSH server is not known to {ssh_conn_id}: {error}",
            where=where,
            safe=_SAFE,
            remedy=_HOST_KEY.format(host=hook.remote_host, port=hook.port),
        )
    rejected = isinstance(error, paramiko.AuthenticationException) or "No authentication methods" in str(error)
    if rejected:
        return AccessDenied(
            f"The SSH server rejected the user {hook.username!r} of {ssh_conn_id}: {error}",
            where=where,
            safe=_SAFE,
            remedy="correct private_key, key_file or the password of the SSH connection, or add the public key to authorized_keys on the bastion",
        )
    if isinstance(error, FileNotFoundError | PermissionError) and error.filename:
        return ConfigError(
            f"The key file of {ssh_conn_id} cannot be read: {error}",
            safe=_SAFE,
            remedy="put the file there on every worker, readable by Airflow; or set private_key in the extra of the SSH connection",
        )
    return unavailable(
        f"The SSH server of {ssh_conn_id} cannot be reached: {_describe(error)}",
        where=where,
        safe=_SAFE,
        remedy="check that the bastion is running and that the workers may connect to it; the next attempt opens the tunnel again",
    )


def build_channel_error(
    error: Exception, ssh_conn_id: str, database: str, unavailable: type[TransientError]
) -> CdcError:
    """Build the error for a database that the bastion does not forward to.

    :param database: ``host:port``
    """
    import paramiko

    if isinstance(error, paramiko.ChannelException) and error.code == _PROHIBITED:
        return AccessDenied(
            f"The SSH server of {ssh_conn_id} does not allow tunnels to {database}: {error.text}",
            where=database,
            safe=_SAFE,
            remedy="on the bastion, set AllowTcpForwarding yes in sshd_config, and allow the address in PermitOpen or permitopen",
        )
    reason = error.text if isinstance(error, paramiko.ChannelException) else _describe(error)
    return unavailable(
        f"The database {database} cannot be reached from the SSH server of {ssh_conn_id}: {reason}",
        where=database,
        safe=_SAFE,
        remedy="host and port of the database's connection are those that the bastion sees; check that the database is running and that the bastion "
        "may connect to it",
    )


def _describe(error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return f"its name is not known: {error.strerror}"
    return str(error) or type(error).__name__


def _bastion(hook: Any) -> str:
    return f"{hook.username}@{hook.remote_host}:{hook.port}"
