"""Waits until a Spark job on a platform has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_cdc.services.submit import build_platform
from airflow_provider_cdc.services.submit.job_runner import JobPolls, cancel_job
from airflow_provider_cdc.services.submit.platform import Platform
from airflow_provider_cdc.triggers.blocking_call_threads import get_loop_threads


class SparkJobTrigger(BaseTrigger):
    """Fires ``{"stage", "message", "url"}`` when the run has ended, or ``{"error"}`` if its end is unknown.

    Its arguments hold ids of connections and references to secrets, never their contents. A user who clears the task or sets its state cancels the run.

    :param submit: the platform and its parameters, as of ``submit=``
    :param run: identity of the run
    """

    def __init__(self, submit: str | Mapping[str, Any], run: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.submit, self.run_id = submit if isinstance(submit, str) else dict(submit), run

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {"submit": self.submit, "run": self.run_id}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll the platform in a thread."""
        platform = self._build_platform()
        polls = JobPolls(platform, self.run_id)
        while True:
            try:
                status = await get_loop_threads().run(("spark", platform.NAME), polls.poll)
            except (
                Exception
            ) as e:  # each service has errors of its own; the task reads the report of the job all the same
                yield TriggerEvent({"error": f"{type(e).__name__}: {e}"})  # type: ignore[no-untyped-call]
                return
            if status is not None and not status.active:
                yield TriggerEvent({"stage": status.stage, "message": status.message, "url": status.url})  # type: ignore[no-untyped-call]
                return
            await asyncio.sleep(platform.poll_interval)

    async def on_kill(self) -> None:
        """Cancel the run."""
        platform = self._build_platform()
        await get_loop_threads().run(("spark", platform.NAME), lambda: cancel_job(platform, self.run_id))

    def _build_platform(self) -> Platform:
        platform = build_platform(self.submit)
        if platform is None:
            raise TypeError("spark-submit is no platform")
        return platform
