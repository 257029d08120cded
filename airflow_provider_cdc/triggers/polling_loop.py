"""Asks again and again, together with all others that wait in the same triggerer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from airflow_provider_cdc.core.errors import TransientError

T = TypeVar("T")

_SLOWEST = 8
"""A system that cannot be reached is polled at growing intervals, up to this many times the interval."""


async def poll_repeatedly(ask: Callable[[], Awaitable[T]], interval: float, *, whom: str, log: Any) -> AsyncIterator[T]:
    """Yield the answers to a question, every ``interval`` seconds, for ever.

    It asks now, and then at the same moments as all others that have this interval.

    :param whom: the polled system, for the log
    :raises CdcError: as the question raises, unless it can be polled again
    """
    failures = 0
    while True:
        try:
            answer = await ask()
        except TransientError as e:
            failures += 1
            log.warning("%s cannot be polled (%d failures in a row), trying again: %s", whom, failures, e)
        else:
            failures = 0
            yield answer
        await asyncio.sleep(until_next(interval) + interval * (min(2**failures, _SLOWEST) - 1))


def until_next(interval: float) -> float:
    """Seconds until the next moment at which all poll that have this interval."""
    return interval - asyncio.get_running_loop().time() % interval
