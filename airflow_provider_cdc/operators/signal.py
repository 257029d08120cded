"""Tasks that send signals to connectors."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.core.errors import CdcError, ConfigError
from airflow_provider_cdc.core.model.connector_signal import SentSignal, Signal
from airflow_provider_cdc.core.signals.signal_request_parser import SignalRejected, parse_request
from airflow_provider_cdc.hooks.airflow_compat import AirflowException, AirflowFailException
from airflow_provider_cdc.hooks.page_links import ConnectorLink
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID, CdcStateHook
from airflow_provider_cdc.services.connectors.connector_handle import find_connector
from airflow_provider_cdc.services.connectors.parameter_checks import parse_optional_seconds, parse_seconds
from airflow_provider_cdc.services.tasks.connector_fields import (
    StateFields,
    format_signal_origin,
    format_signal_sender,
    to_airflow_exception,
)
from airflow_provider_cdc.services.text.pause_gap_signal_texts import failure_text
from airflow_provider_cdc.triggers.signal_completed import SignalCompletedTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context


class SendSignalOperator(StateFields, BaseOperator):
    """Sends a signal to a connector: a request to a connector at work.

    Types and data are the documented ones ("Sending signals to a connector").

    The signal is recorded in the state tables, and the connector's run carries it out: the present run or the next one. A task that is
    retried does not send again; one that is cleared does. Invalid data is refused before it is sent.

        >>> SendSignalOperator(
        ...     task_id="pause", connector="shop", type="pause-snapshot", data={"type": "incremental"}, wait=True)

    Returns ``{"number", "id", "type"}``, where ``number`` identifies the signal; with ``wait`` also ``state``,
    ``message`` and ``progress``. A signal that is refused or fails then fails the task.

    :param connector: the connector, or its name (templated)
    :param type: for example ``execute-snapshot``, ``stop-snapshot``, ``pause-snapshot``, ``resume-snapshot`` or ``log`` (templated)
    :param data: a JSON object, or its text (templated)
    :param id: id of the signal in notifications (templated); by default the DAG run and the task
    :param state_conn_id: Airflow connection to the state tables (templated)
    :param wait: wait until it has ended
    :param deferrable: wait in the triggerer; otherwise in the worker
    :param poll_interval: seconds between two polls of its state
    :param wait_timeout: how long to wait; the signal remains when that is over
    """

    template_fields: Sequence[str] = (*StateFields.STATE_FIELDS, "type", "data", "id")
    template_fields_renderers = {"data": "json"}
    TEXTS: ClassVar[tuple[str, ...]] = ("type",)
    OPTIONAL_TEXTS: ClassVar[tuple[str, ...]] = ("id",)
    FLAGS: ClassVar[tuple[str, ...]] = ("wait", "deferrable")
    operator_extra_links = (ConnectorLink(),)
    ui_color = "#efe6f5"

    def __init__(
        self,
        *,
        connector: str | ConnectorDefinition,
        type: str,
        data: Mapping[str, Any] | str | None = None,
        id: str | None = None,
        state_conn_id: str = DEFAULT_CONN_ID,
        wait: bool = False,
        deferrable: bool = True,
        poll_interval: float | timedelta = 5.0,
        wait_timeout: float | timedelta | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._set_connector_name(connector, state_conn_id)
        self._defined = isinstance(connector, ConnectorDefinition)
        self.type, self.data, self.id = type, data, id
        self.wait, self.deferrable = wait, deferrable
        limit = parse_optional_seconds("wait_timeout", wait_timeout)
        self.wait_timeout = None if limit is None else timedelta(seconds=limit)
        self.poll_interval = parse_seconds("poll_interval", poll_interval)
        self.check_parameters()

    def execute(self, context: Context) -> dict[str, Any]:
        try:
            sent = self._send(context)
        except CdcError as e:
            raise to_airflow_exception(e) from e
        if not self.wait:
            return sent
        trigger = SignalCompletedTrigger(
            self.connector, sent["number"], state_conn_id=self.state_conn_id, poll_interval=self.poll_interval
        )
        if self.deferrable:
            self.defer(trigger=trigger, method_name="execute_complete", timeout=self._wait_limit)
        return self.execute_complete(context, self._watch(trigger))

    @property
    def _wait_limit(self) -> timedelta | None:
        """The time that the task may wait in the triggerer."""
        return min(filter(None, (self.wait_timeout, self.execution_timeout)), default=None)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Take the event of the trigger."""
        if "error" in event:
            raise AirflowFailException(event["error"])
        if (wrong := failure_text(self.connector, event)) is not None:
            raise AirflowFailException(wrong)
        self.log.info("Signal %s of %s is done.", event["number"], self.connector)
        return event

    def build_signal_data(self) -> dict[str, Any] | str | None:
        """Build the signal's data, from rendered fields."""
        return dict(self.data) if isinstance(self.data, Mapping) else self.data

    def _send(self, context: Context) -> dict[str, Any]:
        signal_data = self.build_signal_data()
        try:
            data = signal_data if signal_data is None or isinstance(signal_data, str) else json.dumps(signal_data)
        except (TypeError, ValueError) as e:
            raise ConfigError(
                f"data must be JSON, but is {signal_data!r}: {e}.",
                safe="No signal was sent.",
                remedy="use texts, numbers, lists and mappings",
            ) from e
        ti = context["ti"]
        called = self.id or f"{ti.dag_id}.{ti.task_id} {ti.run_id}"
        try:
            parse_request(Signal(0, called, self.type, data))
        except SignalRejected as e:
            raise AirflowFailException(f"The signal {self.type} for {self.connector} was not sent: {e}.") from None
        with CdcStateHook(self.state_conn_id).open_store() as store:
            if not self._defined:
                find_connector(store, self.connector)
            signal = SentSignal(
                called, self.type, data, "airflow", format_signal_origin(context), format_signal_sender(context)
            )
            number = store.send(self.connector, signal)
        self.log.info("Signal %d (%s) was sent to %s: %s", number, self.type, self.connector, data or "no data")
        return {"number": number, "id": called, "type": self.type}

    def _watch(self, trigger: SignalCompletedTrigger) -> dict[str, Any]:
        """Wait in this worker."""
        deadline = None if self.wait_timeout is None else time.monotonic() + self.wait_timeout.total_seconds()
        stage = ""
        try:
            with CdcStateHook(self.state_conn_id).open_store() as store:
                while (answer := trigger.poll_once(store)).event is None:
                    if answer.stage != stage:
                        self.log.info("%s", answer.text)
                        stage = answer.stage
                    if deadline is not None and time.monotonic() >= deadline:
                        raise AirflowException(f"Timeout after {self.wait_timeout}: {answer.text}")
                    time.sleep(self.poll_interval)
        except CdcError as e:
            raise to_airflow_exception(e) from e
        return answer.event


class AdHocSnapshotOperator(SendSignalOperator):
    """Reads tables again while changes are captured: sends ``execute-snapshot``.

        >>> AdHocSnapshotOperator(
        ...     task_id="again", connector="shop", tables=["inventory.orders"],
        ...     filters={"inventory.orders": "region = 'north'"}, wait=True)

    :param tables: names, or regular expressions that match whole names (templated)
    :param blocking: the stream stops while the tables are read; otherwise they are read in chunks beside it
    :param filters: table → SQL condition for its rows; with ``blocking`` the whole SELECT (templated)
    :param surrogate_key: column to cut chunks by instead of the primary key (templated)
    :param chunk_size: rows that are read at a time, not with ``blocking`` (templated); by default the connector's
    :param replace: empty the tables in the targets first, so that rows that were deleted at the source disappear there, too
    :param key_ranges: only rows of these ranges of keys are read, and keys that are gone become deletes; as the signal has them (templated)
    :param on_spark: executors of Spark read the tables, with ``blocking`` only; see docs/run/snapshots-on-spark.md
    """

    template_fields: Sequence[str] = (
        *SendSignalOperator.template_fields,
        "tables",
        "filters",
        "surrogate_key",
        "chunk_size",
        "key_ranges",
    )

    OPTIONAL_TEXTS: ClassVar[tuple[str, ...]] = ("surrogate_key",)
    NAME_LISTS: ClassVar[tuple[str, ...]] = ("tables",)
    MAPPINGS: ClassVar[tuple[str, ...]] = ("filters",)
    FLAGS: ClassVar[tuple[str, ...]] = ("blocking", "replace", "on_spark")

    def __init__(
        self,
        *,
        connector: str | ConnectorDefinition,
        tables: Sequence[str],
        blocking: bool = False,
        filters: Mapping[str, str] | None = None,
        surrogate_key: str | None = None,
        chunk_size: int | str | None = None,
        replace: bool = False,
        key_ranges: Sequence[Mapping[str, Any]] = (),
        on_spark: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(connector=connector, type="execute-snapshot", **kwargs)
        self.tables, self.blocking, self.filters = tables, blocking, filters
        self.surrogate_key, self.chunk_size, self.replace = surrogate_key, chunk_size, replace
        self.key_ranges, self.on_spark = key_ranges, on_spark
        self.check_parameters()

    def build_signal_data(self) -> dict[str, Any]:
        return execute_snapshot(
            self.tables,
            blocking=self.blocking,
            filters=self.filters,
            surrogate_key=self.surrogate_key,
            chunk_size=self.chunk_size,
            replace=self.replace,
            key_ranges=self.key_ranges,
            on_spark=self.on_spark,
        )


def execute_snapshot(
    tables: Sequence[str],
    *,
    blocking: bool = False,
    filters: Mapping[str, str] | None = None,
    surrogate_key: str | None = None,
    chunk_size: int | str | None = None,
    replace: bool = False,
    key_ranges: Sequence[Mapping[str, Any]] = (),
    on_spark: bool = False,
) -> dict[str, Any]:
    """Build the data of an ``execute-snapshot`` signal.

    >>> execute_snapshot(["inventory.orders"], filters={"inventory.orders": "id > 7"})["additional-conditions"]
    [{'data-collection': 'inventory.orders', 'filter': 'id > 7'}]
    """
    names = [tables] if isinstance(tables, str) else list(tables)
    data: dict[str, Any] = {"type": "blocking" if blocking else "incremental", "data-collections": names}
    if filters:
        data["additional-conditions"] = [{"data-collection": t, "filter": f} for t, f in filters.items()]
    if surrogate_key:
        data["surrogate-key"] = surrogate_key
    if (rows := _number(chunk_size)) is not None:
        data["chunk-size"] = rows
    if replace:
        data["replace"] = True
    if key_ranges:
        data["key-ranges"] = _to_list(key_ranges)
    if on_spark:
        data["engine"] = "spark"
    return data


def _to_list(value: Any) -> Any:
    """Return a sequence as a list; other values are left as they are, and rejected when the signal is sent."""
    return list(value) if isinstance(value, Sequence) else value


def _number(value: int | str | None) -> int | str | None:
    """Parse a number from a template's text.

    A text that is no number is left as it is, and rejected when the signal is sent.
    """
    if not isinstance(value, str):
        return value
    text = value.strip()
    try:
        return int(text) if text else None
    except ValueError:
        return value
