"""The common part of all test servers: a folder, a port, and a life of start, stop, kill and restart."""

import os
import pwd
import shutil
import signal
import tempfile
import time
import weakref
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from dev.patience import overload
from dev.ports import free_port
from dev.servers.process import Account, GuardedProcess, Program, ServerError, tail

START_SECONDS = float(os.environ.get("CDC_DEV_START_SECONDS", "90"))
STOP_SECONDS = 60
START_ATTEMPTS = 3
LONGEST_SOCKET_PATH = 100


class Server(ABC):
    """A private server on 127.0.0.1 with its own data folder.

    ``options`` are the server's own settings by name; they replace the defaults of the class, and ``None`` takes a
    default out. A folder given by the caller is kept and may already hold data of an earlier run; otherwise a new one
    is made, and deleted in the end.
    """

    kind: ClassVar[str]
    DEFAULTS: ClassVar[dict[str, Any]] = {}
    STOP_SIGNAL: ClassVar[signal.Signals] = signal.SIGTERM
    QUIT_SIGNAL: ClassVar[int] = 0

    host = "127.0.0.1"
    user: str
    password: str

    def __init__(
        self, options: dict[str, Any] | None = None, *, folder: Path | str | None = None, port: int | None = None
    ) -> None:
        self.options: dict[str, Any] = {**self.DEFAULTS, **(options or {})}
        self._owns_folder = folder is None
        self._folder = Path(folder).absolute() if folder else None
        self._port = port
        self._port_is_fixed = port is not None
        self._short: Path | None = None
        self._process: GuardedProcess | None = None
        self._at_exit: weakref.finalize[..., Server] | None = None

    # life

    def start(self) -> Self:
        """Start the server and wait until it answers. Data of an earlier start is still there."""
        if self.running:
            return self
        self.folder.mkdir(parents=True, exist_ok=True)
        self._prepare()
        for attempt in range(1, START_ATTEMPTS + 1):
            try:
                self._launch()
                self._port_is_fixed = True  # from now on a restart comes back on the same port
                return self
            except ServerError as error:
                if attempt == START_ATTEMPTS or self._port_is_fixed or "already in use" not in str(error):
                    raise
                self._port = None
        raise AssertionError("unreachable")

    def stop(self) -> None:
        """Shut the server down in an orderly way; its data stays."""
        self._end(self.STOP_SIGNAL)

    def kill(self) -> None:
        """Kill the server with SIGKILL, as a crash does; its data stays as the crash left it."""
        self._end(signal.SIGKILL)

    def restart(self, **changed: Any) -> Self:
        """Stop and start again on the same port with the same data, with these options changed."""
        self.stop()
        self.options |= changed
        return self.start()

    def close(self) -> None:
        """End the server and delete its data (a folder given by the caller stays)."""
        if self._owns_folder:
            self._end(signal.Signals(self.QUIT_SIGNAL) if self.QUIT_SIGNAL else signal.SIGKILL)
        else:
            self.stop()
        for folder in self._disposable():
            shutil.rmtree(folder, ignore_errors=True)
        if self._owns_folder:
            self._folder = None
        self._short = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = f"pid {self.pid}, port {self.port}" if self.running else "not running"
        return f"<{type(self).__name__} {state}>"

    # where it is

    @property
    def folder(self) -> Path:
        """Everything of this server: data, log, temporary files."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix=f"cdc-{self.kind}-"))
            self._at_exit = weakref.finalize(self, _remove, self._folder, os.getpid())
        return self._folder

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.folder / "data"

    @property
    def log(self) -> Path:
        """The server's own log file."""
        return self.folder / "server.log"

    @property
    def port(self) -> int:
        """The TCP port; stays the same over restarts."""
        if self._port is None:
            self._port = free_port(self.host)
        return self._port

    @property
    def socket_folder(self) -> Path:
        """A folder for a Unix socket, short enough for the limit on such paths."""
        if len(str(self.folder)) < LONGEST_SOCKET_PATH - len("/.s.PGSQL.65535"):
            return self.folder
        if self._short is None:
            self._short = Path(tempfile.mkdtemp(prefix="cdc-", dir="/tmp"))
        return self._short

    @property
    def running(self) -> bool:
        """True if the program runs now."""
        return self._process is not None and self._process.running

    @property
    def pid(self) -> int | None:
        """The pid of the server program while it runs."""
        return self._process.pid if self._process and self._process.running else None

    def detach(self) -> int:
        """Let the server outlive this process; returns a pid that takes a SIGTERM when it shall end."""
        assert self._process
        self._process.detach()
        if self._at_exit:
            self._at_exit.detach()
        return self._process.guard_pid

    # what each kind of server says

    @abstractmethod
    def _prepare(self) -> None:
        """Make sure that the programs are here and the data folder is filled."""

    @abstractmethod
    def _command(self) -> tuple[list[str], dict[str, str]]:
        """The command line and additional environment variables."""

    @abstractmethod
    def _answers(self) -> bool:
        """Check whether the server answers requests now."""

    def _account(self) -> Account | None:
        """The system user to run as, when the current one will not do."""
        return None

    # machinery

    def _launch(self) -> None:
        command, environment = self._command()
        program = Program(
            command, self.folder, self.log, environment,
            account=self._account(), delete=self._disposable(), quit_signal=self.QUIT_SIGNAL,
        )  # fmt: skip
        self._process = GuardedProcess(program)
        began = time.monotonic()
        while not self._answers():
            if not self.running:
                self._process = None
                raise ServerError(f"{self.kind} ended while it started; the end of {self.log}:\n{tail(self.log)}")
            if time.monotonic() > began + START_SECONDS * overload():
                self.kill()
                raise ServerError(
                    f"{self.kind} did not answer within {time.monotonic() - began:.0f} s; the end of {self.log}:\n{tail(self.log)}"
                )
            time.sleep(0.03)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send(number)
        if not process.wait(STOP_SECONDS):
            process.send(signal.SIGKILL)
            process.wait(STOP_SECONDS)
            raise ServerError(
                f"{self.kind} did not stop within {STOP_SECONDS} s and was killed; "
                f"the end of {self.log}:\n{tail(self.log)}"
            )

    def _disposable(self) -> list[Path]:
        folders = [self.folder] if self._owns_folder and self._folder else []
        return [*folders, self._short] if self._short else folders


def _remove(folder: Path, owner: int) -> None:
    """Delete the folder of a stopped server when its owner ends, but not when only a fork of the owner does."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def unprivileged_account(*names: str) -> Account | None:
    """For programs that refuse to run as root: the first of these users that exists. None when not root."""
    if os.geteuid() != 0:
        return None
    for name in names:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise ServerError(f"this server refuses to run as root, and there is no user {' or '.join(names)} to run it as")
