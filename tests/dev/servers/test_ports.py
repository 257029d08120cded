"""Ports of test servers: no one else gets them while a server is down."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import ExitStack, closing

import pytest

from dev import paths, ports

MANY = "from dev import ports; ports.FIRST = ports._end() - 1200; print(*(ports.free_port() for _ in range(60)), flush=True); input()"


@pytest.fixture
def narrow_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few ports that processes which choose by chance would meet."""
    monkeypatch.setattr(ports, "FIRST", ports._end() - 1200)


def _start_process() -> subprocess.Popen[str]:
    command = [sys.executable, "-c", MANY]
    return subprocess.Popen(command, cwd=paths.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_no_two_processes_get_the_same_and_a_port_is_free_again_with_the_end_of_its_process(narrow_ports: None) -> None:
    with ExitStack() as stack:
        others = [stack.enter_context(_start_process()) for _ in range(4)]
        found = []
        for other in others:
            assert other.stdout is not None
            found += [int(port) for port in other.stdout.readline().split()]
        mine = [ports.free_port() for _ in range(60)]
        assert len({*found, *mine}) == len(found) + len(mine) == 300
        assert not any(ports._lock_port(port) for port in found)
        others[0].kill()
        others[0].wait()
        assert all(ports._lock_port(port) for port in found[:60])
        for other in others[1:]:
            other.kill()


def test_outgoing_connections_do_not_get_them() -> None:
    port = ports.free_port()
    assert port < ports._end()
    with closing(socket.create_server(("127.0.0.1", port))) as server:
        for _ in range(20):
            with socket.create_connection(server.getsockname()) as connection:
                assert connection.getsockname()[1] >= ports._end()
