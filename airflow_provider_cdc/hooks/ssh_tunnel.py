"""Tunnels to databases through a bastion, by SSH connections of Airflow.

The SSH connection is made by ``SSHHook`` of Airflow's provider, so that accounts, keys, host keys and proxy commands are those that it knows. The
hook's own tunnel serves all its users in one thread and does not open again after a break, so connections are forwarded here, over its
client. The provider is imported when the first tunnel is opened.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import os
import select
import socket
import threading
import time
from typing import TYPE_CHECKING, Final

from airflow_provider_cdc.core.errors import CdcError, SourceUnavailable, TransientError
from airflow_provider_cdc.hooks import ssh_errors

if TYPE_CHECKING:
    import paramiko

log = logging.getLogger(__name__)

IDLE_S: Final = 60.0
"""A tunnel without users is closed after this time."""
OPEN_S: Final = 20.0
"""How long the bastion may take to reach the database."""
_LOCAL: Final = "127.0.0.1"
_BLOCK: Final = 1 << 17


def open_tunnel_address(
    ssh_conn_id: str, host: str, port: int, *, unavailable: type[TransientError]
) -> tuple[str, int]:
    """Return the local end of the tunnel to a database, which is opened if it is not open. A connection to it must follow.

    See :func:`airflow_provider_cdc.core.ssh_tunnels.find_address` for the errors.
    """
    with _all:
        tunnel = _tunnels.setdefault((ssh_conn_id, host, port), SshTunnel(ssh_conn_id, host, port))
    return tunnel.open_address(unavailable)


class SshTunnel:
    """A tunnel to one database through one bastion: each connection to its local end becomes a channel of one SSH connection.

    It opens with its first user, opens again after a break, and closes a minute after its last user. Its threads end with the process, which for
    a task is the end of the task. Thread-safe.
    """

    def __init__(self, ssh_conn_id: str, host: str, port: int) -> None:
        self._conn_id, self._host, self._port = ssh_conn_id, host, port
        self._lock = threading.Lock()
        self._client: paramiko.SSHClient | None = None
        self._listener: socket.socket | None = None
        self._waiting: collections.deque[tuple[paramiko.Channel, float]] = collections.deque()
        self._users, self._used_at = 0, time.monotonic()

    def open_address(self, unavailable: type[TransientError]) -> tuple[str, int]:
        """Return the local end, with a channel to the database ready for the next connection.

        So an error has its cause: behind the local end, a driver would see no more than a connection that closes.
        """
        with self._lock:
            self._waiting.append((self._open_channel(unavailable), time.monotonic()))
            self._used_at = time.monotonic()
            if self._listener is None:
                self._listener = socket.create_server((_LOCAL, 0))
                threading.Thread(target=self._serve, args=(self._listener,), daemon=True, name="cdc-tunnel").start()
            return _LOCAL, int(self._listener.getsockname()[1])

    def _open_channel(self, unavailable: type[TransientError]) -> paramiko.Channel:
        """Open a channel to the database, and the SSH connection where it is not open any more."""
        import paramiko

        for is_last in (False, True):
            transport = self._connect(unavailable)
            try:
                return transport.open_channel("direct-tcpip", (self._host, self._port), (_LOCAL, 0), timeout=OPEN_S)
            except (paramiko.SSHException, OSError, EOFError) as e:
                if is_last or transport.is_active():
                    if not self._users:  # the next attempt looks at the connection again: it may have been corrected
                        self._disconnect()
                    raise ssh_errors.build_channel_error(
                        e, self._conn_id, f"{self._host}:{self._port}", unavailable
                    ) from e
                log.info("The SSH connection %s is lost: %s; it is opened again.", self._conn_id, e)
        raise AssertionError("unreachable")

    def _connect(self, unavailable: type[TransientError]) -> paramiko.Transport:
        transport = self._client.get_transport() if self._client is not None else None
        if transport is None or not transport.is_active():
            self._disconnect()
            self._client = _open_client(self._conn_id, unavailable)
            transport = self._client.get_transport()
            assert transport is not None
            log.info("Opened a tunnel to %s:%s by the SSH connection %s.", self._host, self._port, self._conn_id)
        return transport

    def _disconnect(self) -> None:
        while self._waiting:
            self._waiting.popleft()[0].close()
        if self._client is not None:
            self._client.close()
            self._client = None

    def _serve(self, listener: socket.socket) -> None:
        """Accept connections until there has been no user for a while."""
        while not self._close_if_idle():
            if select.select([listener], [], [], 1.0)[0]:
                connection, _ = listener.accept()
                threading.Thread(target=self._forward, args=(connection,), daemon=True, name="cdc-tunnel").start()

    def _close_if_idle(self) -> bool:
        with self._lock:
            if self._users or time.monotonic() - self._used_at < IDLE_S:
                return False
            if self._listener is not None:
                self._listener.close()
                self._listener = None
            self._disconnect()
            return True

    def _forward(self, connection: socket.socket) -> None:
        """Forward one connection until one of its ends is closed."""
        with self._lock:
            self._users += 1
        try:
            with self._lock:
                channel = self._take_waiting() or self._open_channel(SourceUnavailable)
            _copy_both_ways(connection, channel)
        except CdcError as e:  # a driver that connects a second time by itself; it reports a lost connection
            log.warning("%s", e)
        finally:
            connection.close()
            with self._lock:
                self._users -= 1
                self._used_at = time.monotonic()

    def _take_waiting(self) -> paramiko.Channel | None:
        """Return a channel that waits for its connection; one that a driver has not used closes, as the server ends it soon."""
        while self._waiting:
            channel, since = self._waiting.popleft()
            if not channel.closed and time.monotonic() - since < OPEN_S:
                return channel
            channel.close()
        return None


def _open_client(ssh_conn_id: str, unavailable: type[TransientError]) -> paramiko.SSHClient:
    hook = ssh_errors.build_hook(ssh_conn_id)
    hook.conn_retry_attempts = 1  # the task is retried; a rejected key or host key must not be tried three times
    try:
        return hook.get_conn()
    except Exception as e:  # of paramiko, of the socket, of a file with a key
        raise ssh_errors.build_connect_error(e, ssh_conn_id, hook, unavailable) from e


def _copy_both_ways(connection: socket.socket, channel: paramiko.Channel) -> None:
    """Copy until both directions have ended, or one end is lost; the other end then closes, too."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    up = threading.Thread(target=_copy_up, args=(connection, channel), daemon=True, name="cdc-tunnel")
    up.start()
    try:
        with contextlib.suppress(OSError):  # the driver has closed its end
            while data := channel.recv(_BLOCK):
                connection.sendall(data)
    finally:
        channel.close()
        with contextlib.suppress(OSError):  # closed already
            connection.shutdown(socket.SHUT_RDWR)
        up.join()


def _copy_up(connection: socket.socket, channel: paramiko.Channel) -> None:
    with contextlib.suppress(OSError, EOFError):  # one of the two is lost; the other direction ends both
        while data := connection.recv(_BLOCK):
            channel.sendall(data)
        channel.shutdown_write()


_tunnels: dict[tuple[str, str, int], SshTunnel] = {}
_all = threading.Lock()


def _forget_tunnels() -> None:
    """Let a forked process open separate tunnels: threads stay in its parent."""
    global _all
    _all = threading.Lock()
    _tunnels.clear()


os.register_at_fork(after_in_child=_forget_tunnels)
