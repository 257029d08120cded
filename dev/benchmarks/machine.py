"""Whether the machine was quiet enough for the figures to mean something."""

from __future__ import annotations

import os
import time
from pathlib import Path


class Watch:
    """CPU seconds of the whole machine since the watch was made, against those that are accounted for."""

    def __init__(self) -> None:
        self._busy, self._at = _busy(), time.monotonic()

    def others(self, own_s: float) -> float:
        """Cores that other processes, the database server among them, kept busy on average."""
        return max(0.0, (_busy() - self._busy - own_s) / max(time.monotonic() - self._at, 0.001))


def load() -> float:
    """The load average of the last minute."""
    return round(os.getloadavg()[0], 2)


def _busy() -> float:
    """CPU seconds of all processes since the machine was started."""
    user, nice, system, _, _, irq, soft, *_ = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:])
    return float(user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")
