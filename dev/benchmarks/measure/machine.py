"""Load of the machine: it was quiet enough for the figures to mean something, or it was not."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path


class Watch:
    """CPU seconds of the whole machine since the watch was made, against those that are accounted for."""

    def __init__(self) -> None:
        self._busy, self._at = _read_busy_seconds(), time.monotonic()

    def others(self, own_s: float) -> float:
        """Cores that other processes, the database server among them, kept busy on average."""
        return max(0.0, (_read_busy_seconds() - self._busy - own_s) / max(time.monotonic() - self._at, 0.001))


@contextlib.contextmanager
def load_cores(cores: int) -> Iterator[None]:
    """Meanwhile so many cores have someone else's work to do, as far as there is room for it beside ours."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cores)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def load() -> float:
    """The load average of the last minute."""
    return round(os.getloadavg()[0], 2)


def cpu_s(pid: int, *, children: bool) -> float:
    """CPU seconds of a process up to now.

    :param children: with those of the processes that it has waited for
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if children else 13])) / os.sysconf("SC_CLK_TCK")


def tree_cpu_s(pid: int) -> float:
    """CPU seconds of a process and all that come from it, up to now: of those that have ended, too, if someone has waited for them."""
    total, known = 0.0, [pid]
    while known:
        one = known.pop()
        with contextlib.suppress(OSError):  # it has just ended
            total += cpu_s(one, children=True)
            for children in Path(f"/proc/{one}/task").glob("*/children"):
                known += map(int, children.read_text().split())
    return total


def rss_mb(pid: int, *, peak: bool = False) -> float:
    """The memory that a process has now, or the most that it has had."""
    status, name = Path(f"/proc/{pid}/status").read_text(), "VmHWM:" if peak else "VmRSS:"
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(name)) / 1024


def _read_busy_seconds() -> float:
    """CPU seconds of all processes since the machine was started."""
    user, nice, system, _, _, irq, soft, *_ = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:])
    return float(user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")
