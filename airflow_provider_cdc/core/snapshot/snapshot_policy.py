"""Policies of ``snapshot.mode``.

A policy decides whether rows and schemas are read, whether a run streams, what happens when the position is lost.

Each mode is a :class:`SnapshotPolicy` (Debezium MySQL connector, "Custom snapshotter SPI"): a :class:`FixedPolicy` for the built-in ones and
``configuration_based``, a class of the user for ``custom``. Users may also provide the SELECT of each
table (``snapshot.query.mode=custom``) and the statement that locks it (``snapshot.locking.mode=custom``). All three are entry points
of a package that is installed where captures run.
"""

from __future__ import annotations

import abc
import enum
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.config.property_enums import SnapshotMode, SnapshotQueryMode
from airflow_provider_cdc.core.config.table_source_config import TableConfig
from airflow_provider_cdc.core.entry_points import SNAPSHOT_LOCKS, SNAPSHOT_POLICIES, SNAPSHOT_QUERIES
from airflow_provider_cdc.core.errors import PrerequisiteError
from airflow_provider_cdc.core.extension_calls import build_unusable_error, call_extension, load_extension
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.spi.remote_readers import ViewSharing
from airflow_provider_cdc.core.spi.source import Finding, Source

log = logging.getLogger(__name__)


def find_unshared_view(source: Source) -> Finding | None:
    """Return the finding that the views of a source cannot be shared, as ``snapshot.engine=spark`` needs it; ``None`` if they can."""
    if source.VIEW_SHARING is not ViewSharing.NONE:
        return None
    return Finding(
        f"Snapshots of {source.connector} databases cannot be read by Spark.", "remove snapshot.engine=spark"
    )


class SnapshotPolicy(abc.ABC):
    """Decides about the snapshots of a connector.

    A custom policy is a subclass, and an entry point of group ``airflow_provider_cdc.snapshot_policies``. It is made at the
    beginning of each run, with the connector's properties (no secrets) by their documented names, and lives as long as the run.
    """

    @abc.abstractmethod
    def should_snapshot_data(self, offset_exists: bool, in_progress: bool) -> bool:
        """Decide whether the rows of all tables are read.

        Asked at the beginning of a run, and with ``(False, False)`` for tables that a running connector has to read: new ones, and
        those that a DDL statement has rewritten. With ``(True, True)``, an interrupted snapshot continues with the tables that are left; if
        ``(True, False)`` is true as well, it begins again.

        :param offset_exists: the connector has a position in the log
        :param in_progress: the last run ended within a snapshot
        """

    @abc.abstractmethod
    def should_snapshot_schema(self, offset_exists: bool, in_progress: bool) -> bool:
        """Decide whether the schemas of all tables are read; with rows they always are.

        A connector that has a position in the log knows the schemas in force there, so for it nothing is read without rows.
        """

    @abc.abstractmethod
    def should_stream(self) -> bool:
        """Decide whether the run streams, after the snapshot where there is one."""

    @abc.abstractmethod
    def should_snapshot_on_schema_error(self) -> bool:
        """Decide whether a lost schema history is rebuilt from the present table schemas."""

    @abc.abstractmethod
    def should_snapshot_on_data_error(self) -> bool:
        """Decide whether all tables are read again when the log does not hold the connector's position any more."""

    def should_stream_from_snapshot(self) -> bool:
        """Decide where a connector that has a position in the log continues after reading all tables.

        It continues at the snapshot's position (yes), or where streaming had stopped (no). Changes in between are in the rows of the tables, and are
        not captured as events.
        """
        return True

    def snapshot_completed(self) -> None:  # noqa: B027
        """Handle the end of a snapshot, which is durable."""

    def snapshot_aborted(self) -> None:  # noqa: B027
        """Handle the end of a snapshot before all tables were read."""


SnapshotQuery = Callable[[TableId, Sequence[str]], str | None]
"""Entry point of group ``airflow_provider_cdc.snapshot_queries``: the SELECT that gives the rows of a table, with these columns.
``None``: none of its rows is read, but its changes are streamed."""
SnapshotLock = Callable[[float, TableId], str | None]
"""Entry point of group ``airflow_provider_cdc.snapshot_locks``: given seconds to wait at most, and a table, the statement that locks
it while a snapshot begins; ``None`` where no lock is needed."""


class SnapshotTiming(enum.Enum):
    """Conditions under which something is read."""

    NEVER = enum.auto()
    ONCE = enum.auto()
    EACH_RUN = enum.auto()

    def is_due_now(self, offset_exists: bool, in_progress: bool) -> bool:
        return self is SnapshotTiming.EACH_RUN or (self is SnapshotTiming.ONCE and (in_progress or not offset_exists))


@dataclass(frozen=True, slots=True)
class FixedPolicy(SnapshotPolicy):
    """A policy that follows from the configuration alone."""

    data: SnapshotTiming
    schema: SnapshotTiming
    stream: bool = True
    on_schema_error: bool = False
    on_data_error: bool = False

    def should_snapshot_data(self, offset_exists: bool, in_progress: bool) -> bool:
        return self.data.is_due_now(offset_exists, in_progress)

    def should_snapshot_schema(self, offset_exists: bool, in_progress: bool) -> bool:
        return self.schema.is_due_now(offset_exists, in_progress)

    def should_stream(self) -> bool:
        return self.stream

    def should_snapshot_on_schema_error(self) -> bool:
        return self.on_schema_error

    def should_snapshot_on_data_error(self) -> bool:
        return self.on_data_error


_MODES: Final[Mapping[SnapshotMode, FixedPolicy]] = {
    SnapshotMode.ALWAYS: FixedPolicy(SnapshotTiming.EACH_RUN, SnapshotTiming.EACH_RUN),
    SnapshotMode.INITIAL: FixedPolicy(SnapshotTiming.ONCE, SnapshotTiming.ONCE),
    SnapshotMode.INITIAL_ONLY: FixedPolicy(SnapshotTiming.ONCE, SnapshotTiming.ONCE, stream=False),
    SnapshotMode.NO_DATA: FixedPolicy(SnapshotTiming.NEVER, SnapshotTiming.ONCE),
    SnapshotMode.NEVER: FixedPolicy(SnapshotTiming.NEVER, SnapshotTiming.NEVER),
    SnapshotMode.RECOVERY: FixedPolicy(SnapshotTiming.ONCE, SnapshotTiming.ONCE, on_schema_error=True),
    SnapshotMode.WHEN_NEEDED: FixedPolicy(SnapshotTiming.ONCE, SnapshotTiming.ONCE, on_data_error=True),
}


def snapshot_policy(config: ConnectorConfig) -> SnapshotPolicy:
    """Build the policy of ``snapshot.mode``, new for each call.

    :raises ConfigError: the user's own cannot be used
    """
    if config.snapshot_mode is SnapshotMode.CUSTOM:
        return _UserPolicy(config)
    if config.snapshot_mode is not SnapshotMode.CONFIGURATION_BASED:
        return _MODES[config.snapshot_mode]
    return FixedPolicy(
        SnapshotTiming.EACH_RUN if config.snapshot_mode_configuration_based_snapshot_data else SnapshotTiming.NEVER,
        SnapshotTiming.EACH_RUN if config.snapshot_mode_configuration_based_snapshot_schema else SnapshotTiming.NEVER,
        config.snapshot_mode_configuration_based_start_stream,
        config.snapshot_mode_configuration_based_snapshot_on_schema_error,
        config.snapshot_mode_configuration_based_snapshot_on_data_error,
    )


def reads_rows(policy: SnapshotPolicy) -> bool:
    """Check whether the rows of a table that is new to a connector are read."""
    return policy.should_snapshot_data(False, False)


def never_reads(config: ConnectorConfig) -> bool:
    """Check whether no snapshot is taken by ``snapshot.mode``, whatever happens. A custom policy is not called."""
    if config.snapshot_mode is SnapshotMode.CUSTOM:
        return False
    policy = snapshot_policy(config)
    answers = policy.should_snapshot_schema(False, False), policy.should_snapshot_on_data_error()
    return not (reads_rows(policy) or any(answers))


def snapshot_query(config: ConnectorConfig) -> SnapshotQuery | None:
    """Return the user's own query; ``None``: all rows are read.

    :raises ConfigError: it cannot be used; also from asking it
    """
    if not isinstance(config, TableConfig) or config.snapshot_query_mode is not SnapshotQueryMode.CUSTOM:
        return None
    setting, query = _loaded(
        "snapshot.query.mode.custom.name", config.snapshot_query_mode_custom_name, SNAPSHOT_QUERIES
    )

    def ask(table: TableId, columns: Sequence[str]) -> str | None:
        return _statement(setting, table, query, table, list(columns))

    return ask


def lock_statements(config: TableConfig, timeout_s: float, tables: Sequence[TableId]) -> dict[TableId, str | None]:
    """Return the statements that the user's own lock gives for each table, with ``snapshot.locking.mode=custom``.

    Several tables may have the same statement, which is then to be run once. Raises like :func:`snapshot_query`.

    :param timeout_s: how long a lock may be waited for, in seconds
    """
    setting, lock = _loaded(
        "snapshot.locking.mode.custom.name", config.snapshot_locking_mode_custom_name, SNAPSHOT_LOCKS
    )
    return {table: _statement(setting, table, lock, timeout_s, table) for table in tables}


def lock_refused(statement: str, why: str, usual: str) -> PrerequisiteError:
    """Return the error of a database that does not accept a statement of the user's own lock.

    :param usual: the locking mode that needs no statement of one's own
    """
    return PrerequisiteError(
        f"The database rejects the statement of snapshot.locking.mode.custom.name: {why}",
        where=statement,
        safe="Nothing was read; the offset is untouched.",
        remedy=f"correct the lock statement, grant the account the missing privileges, or use snapshot.locking.mode={usual}",
    )


# -- of the user's own ------------------------------------------------------------------------------------------------


class _UserPolicy(SnapshotPolicy):
    """A policy of the user. Its exceptions and wrong results become errors that name it."""

    def __init__(self, config: ConnectorConfig) -> None:
        self._setting, make = _loaded("snapshot.mode.custom.name", config.snapshot_mode_custom_name, SNAPSHOT_POLICIES)
        policy = call_extension(self._setting, make, config.to_public_properties())
        if not isinstance(policy, SnapshotPolicy):
            raise build_unusable_error(
                self._setting, f"it returns a {type(policy).__name__}, which is not a {SnapshotPolicy.__name__}"
            )
        self._policy = policy

    def _yes(self, question: Callable[..., bool], *args: bool) -> bool:
        answer = call_extension(f"{self._setting}: {question.__name__}", question, *args)
        if not isinstance(answer, bool):
            raise build_unusable_error(
                self._setting, f"{question.__name__} returns {answer!r}, which is neither True nor False"
            )
        return answer

    def should_snapshot_data(self, offset_exists: bool, in_progress: bool) -> bool:
        return self._yes(self._policy.should_snapshot_data, offset_exists, in_progress)

    def should_snapshot_schema(self, offset_exists: bool, in_progress: bool) -> bool:
        return self._yes(self._policy.should_snapshot_schema, offset_exists, in_progress)

    def should_stream(self) -> bool:
        return self._yes(self._policy.should_stream)

    def should_snapshot_on_schema_error(self) -> bool:
        return self._yes(self._policy.should_snapshot_on_schema_error)

    def should_snapshot_on_data_error(self) -> bool:
        return self._yes(self._policy.should_snapshot_on_data_error)

    def should_stream_from_snapshot(self) -> bool:
        return self._yes(self._policy.should_stream_from_snapshot)

    def snapshot_completed(self) -> None:
        self._call_hook(self._policy.snapshot_completed)

    def snapshot_aborted(self) -> None:
        self._call_hook(self._policy.snapshot_aborted)

    def _call_hook(self, hook: Callable[[], None]) -> None:
        """Call a hook. Its error is only logged: the tables are read already."""
        try:
            hook()
        except Exception:
            log.exception("%s: %s failed.", self._setting, hook.__name__)


def _loaded(name: str, value: str | None, group: str) -> tuple[str, Callable[..., Any]]:
    """Return an entry point as text, and the object that it loads."""
    setting = f"{name}={value}"
    return setting, load_extension(group, value or "", setting)


def _statement(setting: str, table: TableId, function: Callable[..., Any], *args: Any) -> str | None:
    statement = call_extension(f"{setting} for {table}", function, *args)
    if statement is None or (isinstance(statement, str) and statement.strip()):
        return statement
    raise build_unusable_error(setting, f"for {table}, it returns {statement!r}, which is neither a statement nor None")
