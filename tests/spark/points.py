"""Every write of a target goes through a hook, so that tests can stop an apply before or after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spark_jobs.targets.delta import DeltaTarget

WRITES = ("create", "replace", "append", "merge", "_alter")
"""Methods of :class:`DeltaTarget` that each make one commit."""


class Points:
    """Makes target classes."""

    @staticmethod
    def at(base: type[DeltaTarget], hook: Callable[[str, str, Callable[[], Any]], Any]) -> type[DeltaTarget]:
        """``hook(location, name, write)`` is called instead of each write to the table of a location."""

        def through(name: str) -> Callable[..., Any]:
            method = getattr(base, name)

            def call(self: DeltaTarget, *args: Any) -> Any:
                return hook(self.location, name, lambda: method(self, *args))

            return call

        return type("HookedTarget", (base,), {name: through(name) for name in WRITES})
