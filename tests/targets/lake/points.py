"""Every write of a target goes through a hook, so that tests can stop an apply before or after it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from airflow_provider_cdc.targets.lake.formats.format_descriptor import TableFormat
from airflow_provider_cdc.targets.lake.formats.target_interface import Target

WRITES = ("create", "replace", "append", "merge", "upsert_arrays", "apply_difference", "rebuild_rows", "_alter")
"""Methods of targets that each make one commit; ``_alter`` is one change of a table's columns or properties."""
Hook = Callable[[str, str, Callable[[], Any]], Any]


@dataclasses.dataclass(frozen=True)
class HookedFormat(TableFormat):
    """A format whose targets call ``hook(location, name, write)`` instead of each write."""

    hook: Hook | None = None

    def open_target(self, spark: Any, location: str, *, profile: str = "compatible") -> Target:
        target = TableFormat.open_target(self, spark, location, profile=profile)
        for name in WRITES:
            if method := getattr(target, name, None):
                setattr(target, name, self._through(location, name, method))
        return target

    def _through(self, location: str, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        assert self.hook is not None
        hook = self.hook
        return lambda *args: hook(location, name, lambda: method(*args))


def hook_format(format_: TableFormat, hook: Hook) -> HookedFormat:
    """The format with a hook."""
    given = {f.name: getattr(format_, f.name) for f in dataclasses.fields(TableFormat)}
    return HookedFormat(**given, hook=hook)
