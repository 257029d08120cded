"""Custom signal types: entry points of packages that users install beside this one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from airflow_provider_cdc.core.entry_points import list_extensions
from airflow_provider_cdc.core.signals.signal_request_parser import TYPES, SignalRejected

log = logging.getLogger(__name__)

ACTIONS: Final = "airflow_provider_cdc.signals"
"""Entry point group of custom signal types."""


@dataclass(frozen=True, slots=True)
class SignalContext:
    """Context that a custom action is given.

    :param connector: the connector's name
    :param position: the connector's position in the log, as text
    :param log: writes a line into the log of the run
    """

    connector: str
    position: str
    log: Callable[[str], None]


Action = Callable[[SignalContext, dict[str, Any]], str | None]
"""Carries out a custom signal: gets its data, and returns the message of its state, or none. :class:`SignalRejected` makes the state
``refused``, any other exception ``failed``; capture continues either way, and waits until the action returns."""


def custom_actions() -> dict[str, Action]:
    """Signal type → action, from the entry points of group :data:`ACTIONS`.

    The documented types cannot be replaced. If an action cannot be loaded, its signals are refused.
    """
    actions: dict[str, Action] = {}
    for name, point in list_extensions(ACTIONS).items():
        if name in TYPES:
            log.warning("%s of group %s is ignored: %s is a built-in signal type.", point.value, ACTIONS, name)
            continue
        try:
            action: Any = point.load()
        except Exception as e:
            actions[name] = _unusable(f"its action {point.value} cannot be loaded: {type(e).__name__}: {e}")
            continue
        actions[name] = action if callable(action) else _unusable(f"its action {point.value} is not callable")
    return actions


def _unusable(why: str) -> Action:
    log.error("A signal type of group %s cannot be used: %s", ACTIONS, why)

    def refuse(context: SignalContext, data: dict[str, Any]) -> str | None:
        raise SignalRejected(why)

    return refuse
