"""OpenSSH's server, as a bastion in front of a database."""

import contextlib
import os
import pwd
import signal
import socket
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from dev.bootstrap import databases
from dev.servers.base import Server, unprivileged_account
from dev.servers.process import Account


class Sshd(Server):
    """An SSH server that forwards to any address, for one user with one key.

    ``user_key`` is the private key of the user, ``host_key`` the public one of the server: ``ssh-ed25519 AAAA…``. The server does not run as
    root: it needs no separate account then, and no other user can log in.
    """

    kind = "sshd"
    password = ""
    DEFAULTS: ClassVar[dict[str, Any]] = {
        "PubkeyAuthentication": True,
        "PasswordAuthentication": False,
        "KbdInteractiveAuthentication": False,
        "UsePAM": False,
        "StrictModes": False,
        "AllowTcpForwarding": True,
        "MaxStartups": "100",
        "LogLevel": "VERBOSE",
    }

    @cached_property
    def installation(self) -> databases.Installation:
        """The program, fetched when it is not there yet."""
        return databases.ensure("sshd")

    @property
    def version(self) -> str:
        """The version of the server program."""
        return self.installation.version

    @property
    def user(self) -> str:  # type: ignore[override]
        """The user who may log in, with :attr:`user_key`: the one that the server runs as."""
        account = self._account()
        return pwd.getpwuid(account.uid if account else os.geteuid()).pw_name

    @property
    def user_key(self) -> str:
        """The private key of the user."""
        return (self.data / "user").read_text()

    @property
    def host_key(self) -> str:
        """The public key of the server, with its type."""
        return " ".join((self.data / "host.pub").read_text().split()[:2])

    def sessions(self) -> list[int]:
        """Return the pids of the processes that serve connections now."""
        return _descendants(self.pid) if self.pid else []

    def end_sessions(self) -> int:
        """Kill the processes that serve connections, as a reboot of a gateway does; returns their number."""
        return _kill(self.sessions())

    def renew_host_key(self) -> None:
        """Give the server another host key, as another machine at its address has; it must be restarted."""
        self._make_key("host")

    # starting and ending

    def _end(self, number: signal.Signals) -> None:
        """End the server and its sessions, which would outlive it."""
        sessions = self.sessions()
        super()._end(number)
        _kill(sessions)

    def _prepare(self) -> None:
        if not self.data.exists():
            self.data.mkdir()
            self._make_key("host")
            self._make_key("user")
            (self.data / "authorized_keys").write_bytes((self.data / "user.pub").read_bytes())
        if account := self._account():
            for path in (self.folder, self.data, *self.data.iterdir()):
                os.chown(path, account.uid, account.gid)

    def _make_key(self, name: str) -> None:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        key = Ed25519PrivateKey.generate()
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
        public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        file = self.data / name
        file.unlink(missing_ok=True)
        file.write_bytes(private)
        file.chmod(0o600)
        file.with_suffix(".pub").write_bytes(public + b"\n")

    def _account(self) -> Account | None:
        return unprivileged_account("daemon", "postgres")  # OpenSSH takes "nobody" for a locked account

    def _command(self) -> tuple[list[str], dict[str, str]]:
        settings = {
            "Port": self.port,
            "ListenAddress": self.host,
            "HostKey": self.data / "host",
            "AuthorizedKeysFile": self.data / "authorized_keys",
            "PidFile": "none",
            **self.options,
        }
        lines = [f"{name} {_setting(value)}\n" for name, value in settings.items() if value is not None]
        file = self.folder / "sshd_config"
        file.write_text("".join(lines))
        if account := self._account():
            os.chown(file, account.uid, account.gid)
        command = [*self.installation.command, "-D", "-e", "-f", str(file), *self.installation.arguments]
        return command, self.installation.environment

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self.host, self.port), 5) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False


def _kill(pids: list[int]) -> int:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # ended with the one before
            os.kill(pid, signal.SIGKILL)
    return len(pids)


def _setting(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _descendants(pid: int) -> list[int]:
    """Return the processes below one, the oldest first."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # ended meanwhile
            fields = stat.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found: list[int] = []
    for child in sorted(children.get(pid, [])):
        found += [child, *_descendants(child)]
    return found
