"""Several connectors that one task captures or waits for: their fields, and which of them have anything to capture."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_cdc.connector import ChangeCheck, ConnectorDefinition, refuse_secrets
from airflow_provider_cdc.core.errors import ConfigError, StateUnavailable
from airflow_provider_cdc.core.spi.desired_state import DesiredState
from airflow_provider_cdc.hooks.state import CdcStateHook, records_of
from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess
from airflow_provider_cdc.services.connectors.text_templates import TextTemplates

if TYPE_CHECKING:
    from airflow_provider_cdc.core.lifecycle.next_run import RunHold
    from airflow_provider_cdc.core.model.connector_offset import Offset
    from airflow_provider_cdc.core.model.position import Position
    from airflow_provider_cdc.core.spi.state_records import ConnectorRecord
    from airflow_provider_cdc.state.state_store import StateStore

    Decision = Callable[[ConnectorRecord | None, ConnectorAccess], str | RunHold | None]

_ASKED_AT_ONCE = 64
"""Sources that are queried at the same time: many may be down, and fail after half a minute only."""


@dataclass(frozen=True, kw_only=True)
class GroupedConnector:
    """A connector that is captured together with others.

        >>> GroupedConnector(definition=shop, conn_id="shop_mariadb")

    :param conn_id: Airflow connection to the source database
    :param storage_conn_id: Airflow connection with secret fsspec options of the change log in its extra
    """

    definition: ConnectorDefinition
    conn_id: str
    storage_conn_id: str | None = None


class GroupFields(TextTemplates):
    """The fields of several connectors, taken from their definitions so that Airflow can render them."""

    GROUP_FIELDS: ClassVar[tuple[str, ...]] = ("connectors", "state_conn_id")
    """Template fields. Names and kinds of sources are fixed."""

    TEXTS: ClassVar[tuple[str, ...]] = ("state_conn_id",)

    def _set_group(self, connectors: Sequence[GroupedConnector], state_conn_id: str) -> None:
        """Set the fields of the connectors.

        :raises ConfigError: there is none, one is there twice, or a definition holds a secret
        """
        names = [connector.definition.name for connector in connectors]
        if not names or len(set(names)) < len(names):
            raise ConfigError(
                "A group needs at least one connector, and each connector only once.",
                where=f"given: {', '.join(names) or 'none'}",
            )
        for connector in connectors:
            refuse_secrets(connector.definition)
        self.state_conn_id = state_conn_id
        self.connectors: list[dict[str, Any]] = [
            {
                **connector.definition.to_document(),
                "conn_id": connector.conn_id,
                "storage_conn_id": connector.storage_conn_id,
            }
            for connector in connectors
        ]

    @property
    def connector_accesses(self) -> list[ConnectorAccess]:
        """The connectors with rendered fields.

        :raises ConfigError: a template has put a secret into one of them
        """
        accesses = []
        for fields in self.connectors:
            own = {name: value for name, value in fields.items() if name not in ("conn_id", "storage_conn_id")}
            definition = ConnectorDefinition(**own)
            refuse_secrets(definition)
            accesses.append(
                ConnectorAccess(definition, fields["conn_id"], self.state_conn_id, fields["storage_conn_id"] or None)
            )
        return accesses


@dataclass(frozen=True, slots=True)
class ChangeInspection:
    """The result of a look for changes at one of several connectors.

    :param reason: why there is something to capture; ``None`` if there is not
    :param error: why that is not known
    :param hold: the wait after a failure, in which nothing is captured
    """

    access: ConnectorAccess
    reason: str | None = None
    error: Exception | None = None
    hold: RunHold | None = None


def inspect_changes(accesses: Sequence[ConnectorAccess], decide: Decision | None = None) -> Iterator[ChangeInspection]:
    """Check which of several connectors with the same state have anything to capture, each as soon as that is known.

    The state tables are read at once, by one query; the connectors for which they decide come first. Then sources are queried at the same time, each once, however
    many connectors it has, and come as they answer: one that is down delays only those behind all others. A problem of a connector is
    an error of that connector alone.

    :param decide: returns the reason for a run, or the wait after a failure, by the state alone; without it, the source decides
    :raises CdcError: at once: the state tables cannot be read
    """
    decided: list[ChangeInspection] = []
    open_: dict[Hashable, list[_UndecidedConnector]] = {}
    with CdcStateHook(accesses[0].state_conn_id).open_store() as store:
        records = records_of(store, {access.definition.name for access in accesses})
        for access in accesses:
            try:
                inspection = _in_state(access, records[access.definition.name], store, decide)
                if isinstance(inspection, ChangeInspection):
                    decided.append(inspection)
                else:
                    open_.setdefault(access.source_key(), []).append(inspection)
            except StateUnavailable:
                raise
            except Exception as e:  # a mistake in one source must not keep the others from being captured
                decided.append(ChangeInspection(access, error=e))
    return _looked(decided, list(open_.values()))


@dataclass(frozen=True, slots=True)
class _UndecidedConnector:
    """A connector of which the source's log decides."""

    access: ConnectorAccess
    properties: dict[str, Any]
    changes: ChangeCheck
    offset: Offset


def _in_state(
    access: ConnectorAccess, record: ConnectorRecord | Exception | None, store: StateStore, decide: Decision | None
) -> ChangeInspection | _UndecidedConnector:
    if isinstance(record, Exception):
        raise record
    if record is not None and record.control.desired_state is not DesiredState.RUNNING:
        return ChangeInspection(access)  # even if something else is wrong with it
    decision = None if decide is None else decide(record, access)
    if isinstance(decision, str):
        return ChangeInspection(access, decision)
    if decision is not None:
        store.record_wait(access.definition.name, decision.until)
        return ChangeInspection(access, hold=decision)
    properties = access.resolve_properties()
    changes = access.build_change_check(properties)
    reason_or_offset = changes.in_state(record, store)
    if reason_or_offset is None or isinstance(reason_or_offset, str):
        return ChangeInspection(access, reason_or_offset)
    return _UndecidedConnector(access, properties, changes, reason_or_offset)


def _looked(
    decided: Sequence[ChangeInspection], sources: Sequence[Sequence[_UndecidedConnector]]
) -> Iterator[ChangeInspection]:
    yield from decided
    if not sources:
        return
    threads = ThreadPoolExecutor(min(len(sources), _ASKED_AT_ONCE), thread_name_prefix="cdc look")
    try:
        ends = {
            threads.submit(connectors[0].access.end_of_log, connectors[0].properties): connectors
            for connectors in sources
        }
        for end in as_completed(ends):
            yield from (_since(connector, end) for connector in ends[end])
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def _since(connector: _UndecidedConnector, end: Future[Position]) -> ChangeInspection:
    try:
        return ChangeInspection(
            connector.access, connector.changes.explain_log_progress(connector.offset, end.result())
        )
    except Exception as e:  # as above
        return ChangeInspection(connector.access, error=e)
