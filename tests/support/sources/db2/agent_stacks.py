"""The log of a Db2 test server whose agent stands still, with the stacks of its threads."""

from __future__ import annotations

import os
import signal
import time

from dev.servers import Db2

STANDS_STILL = "capture agent does not run"
"""Part of the error of a capture that has waited for the agent in vain."""


def read_agent_stacks(server: Db2, error: str) -> str:
    """Return the end of the server's log, with the stacks of its threads; empty if the error is about something else.

    :param error: text of the error of a capture
    """
    if STANDS_STILL not in error or server.pid is None:
        return ""
    os.kill(server.pid, signal.SIGUSR1)
    time.sleep(0.5)
    return "\n".join(server.log.read_text().splitlines()[-200:])
