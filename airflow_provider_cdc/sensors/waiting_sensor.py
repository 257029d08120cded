"""The base of all sensors: how they wait, and which ends of the waiting are a skip."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from airflow.sdk import BaseSensorOperator
from airflow.sdk.bases.sensor import PokeReturnValue

from airflow_provider_cdc.hooks.airflow_compat import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
)
from airflow_provider_cdc.services.connectors.parameter_checks import CheckedParameters, parse_seconds

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.triggers.base import BaseTrigger


class WaitingSensor(CheckedParameters, BaseSensorOperator):
    """Waits in the triggerer, or in a worker.

    ``execution_timeout`` holds in the triggerer, too: it fails the task.

    With ``soft_fail``, the task is skipped when ``timeout`` is over and there is nothing yet. An error fails the task, whatever ``soft_fail`` is:
    Airflow alone would skip it, and its run would be a success. The same holds for a source that cannot be reached when the time is over.

    :param poll_interval: seconds between two polls
    :param deferrable: wait in the triggerer; otherwise in a worker, in the ``mode`` that sensors have
    """

    FLAGS: ClassVar[tuple[str, ...]] = ("deferrable",)

    def __init__(self, *, poll_interval: float | timedelta, deferrable: bool, **kwargs: Any) -> None:
        self.poll_interval = parse_seconds("poll_interval", poll_interval)
        super().__init__(**{"poke_interval": self.poll_interval, **kwargs})
        self.deferrable = deferrable
        self.check_parameters()

    @abc.abstractmethod
    def start_waiting(self, context: Context) -> Any:
        """Return the task's result, if it need not wait; otherwise defer the task."""

    def execute(self, context: Context) -> Any:
        if self.deferrable:
            return self.start_waiting(context)
        with self._skipped_by_timeout_only():
            return super().execute(context)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Resume the task after its trigger has fired or failed, or after its time is over."""
        try:
            with self._skipped_by_timeout_only():
                return super().resume_execution(next_method, next_kwargs, context)
        except (AirflowSensorTimeout, AirflowSkipException) as e:
            if not _is_timeout(e):
                raise
            poke_result = self._last_poke(context)
            if not poke_result and self._wait_limit < self.timeout:
                raise AirflowTaskTimeout(
                    f"The sensor waited for its execution_timeout, {self.execution_timeout}."
                ) from e
            if not poke_result:
                raise
        return poke_result.xcom_value if isinstance(poke_result, PokeReturnValue) else None

    def defer_to(self, trigger: BaseTrigger, *, at_least: datetime | None = None) -> NoReturn:
        """Let a trigger wait, for as long as ``timeout`` and ``execution_timeout`` allow. Its event is the argument of ``execute_complete``.

        :param at_least: until a minute after this moment, however short ``timeout`` is
        """
        limit = self._wait_limit
        if at_least is not None and self.execution_timeout is None:
            limit = max(limit, (at_least - datetime.now(UTC)).total_seconds() + 60)
        self.defer(trigger=trigger, method_name="execute_complete", timeout=timedelta(seconds=limit))

    @property
    def _wait_limit(self) -> float:
        """Seconds that the task may wait in the triggerer."""
        limit = self.execution_timeout
        return self.timeout if limit is None else min(self.timeout, limit.total_seconds())

    def poke_at_timeout(self, context: Context) -> bool | PokeReturnValue:
        """Ask once more when the time is over: the trigger may have met nothing but errors that pass."""
        return self.poke(context)

    def _last_poke(self, context: Context) -> bool | PokeReturnValue:
        try:
            return self.poke_at_timeout(context)
        except AirflowSkipException:
            raise
        except AirflowException as e:
            raise AirflowFailException(f"The sensor timed out, and its last check failed: {e}") from e

    @contextmanager
    def _skipped_by_timeout_only(self) -> Iterator[None]:
        """Raise the error that ``soft_fail`` has made a skip of, unless it is the end of the time."""
        try:
            yield
        except AirflowSkipException as e:
            cause = e.__cause__
            if self.soft_fail and isinstance(cause, AirflowException) and not _is_timeout(cause):
                raise cause from cause.__cause__
            raise


def _is_timeout(error: BaseException) -> bool:
    return isinstance(error, AirflowSensorTimeout) or isinstance(error.__cause__, AirflowSensorTimeout)
