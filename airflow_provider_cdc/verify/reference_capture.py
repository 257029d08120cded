"""Prepares a verification of tables while capture and apply continue.

It reads what the source has at one position, and finds which batches come after it. The rows are read by a *reference*: the same connector under another name, with a separate state that is deleted afterwards and a scratch change log. Nothing of it
reaches the connector's state, its change log, its signals or its notifications.

    >>> with open_verification(definition, state_url, secrets={"database.password": "…"}) as verification:
    ...     plan = verification.prepare()
    >>> plan.references[0].first
    1204
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_cdc.connector import ConnectorDefinition, open_capture, open_source, parse_config
from airflow_provider_cdc.core.config.target_table_rules import NO_RULES
from airflow_provider_cdc.core.errors import ConfigError, ConnectorHalted, TransientError
from airflow_provider_cdc.core.name_patterns import format_exact_pattern
from airflow_provider_cdc.core.remedy_commands import format_cdc_command

if TYPE_CHECKING:
    from airflow_provider_cdc.changelog.files.change_log import ChangeLog
    from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
    from airflow_provider_cdc.core.config.target_table_rules import TableRules
    from airflow_provider_cdc.core.model.position import Position
    from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
    from airflow_provider_cdc.core.spi.source import Source
    from airflow_provider_cdc.state.state_store import StateStore
    from airflow_provider_cdc.verify.table_repairs import TableRepair
    from airflow_provider_cdc.verify.verification_documents import ReferencePoint, VerificationPlan

log = logging.getLogger(__name__)

FOLDER: Final = ".verify"
"""Folder of scratch change logs below the connector's own one."""
_TRIES: Final = 3
"""How often tables without a key are read, until nothing was written to them at the position."""
_LOOK_S: Final = 1.0
_NOT_FOR_A_REFERENCE: Final = (
    "signal.", "notification.", "heartbeat.", "snapshot.mode", "snapshot.include.collection.list", "snapshot.delay.ms", "position.lost.mode",
    "guardrail.",
)  # fmt: skip
"""Beginnings of properties that a reference does not have, or has its own values for."""


@contextlib.contextmanager
def open_verification(
    definition: ConnectorDefinition,
    state_url: str,
    *,
    state_schema: str | None = None,
    secrets: Mapping[str, Any] | None = None,
    storage_secrets: Mapping[str, Any] | None = None,
    scratch: str | None = None,
    keep: bool = False,
) -> Iterator[Verification]:
    """Open a verification that can be prepared. At its end, the scratch change log is deleted.

    Before, those of verifications that were killed are deleted.

    :param scratch: folder or prefix for the scratch change log; by default one below the connector's change log
    :param keep: leave the scratch change log there
    :raises StateError: the state tables are not there
    """
    from airflow_provider_cdc.changelog.files.change_log import ChangeLog
    from airflow_provider_cdc.changelog.files.scratch_change_log import scratch_changelog
    from airflow_provider_cdc.state.state_store import StateStore

    config = parse_config(definition, secrets)
    store = StateStore(state_url, schema=state_schema)
    try:
        store.check_tables()
        options = {**definition.changelog_options, **(storage_secrets or {})}
        changelog = ChangeLog(definition.changelog, options)
        within = scratch or f"{changelog.storage.url}/{FOLDER}"
        with scratch_changelog(within, options, keep=keep) as own, open_source(definition, secrets) as source:
            yield Verification(definition, config, source, store, changelog, own, secrets, storage_secrets)
    finally:
        store.close()


@dataclass(frozen=True, slots=True)
class _ReferenceRows:
    """A summary of the rows that a reference has read.

    :param schemas: topic → its table
    :param batches: how many it has written
    """

    name: str
    position: Position
    schemas: dict[str, TableSchema]
    batches: int


class Verification:
    """Prepares one comparison.

    :ivar scratch: the scratch change log
    :ivar schemas: topic → its table at the source, of all tables that were read
    """

    def __init__(
        self,
        definition: ConnectorDefinition,
        config: ConnectorConfig,
        source: Source,
        store: StateStore,
        changelog: ChangeLog,
        scratch: ChangeLog,
        secrets: Mapping[str, Any] | None,
        storage_secrets: Mapping[str, Any] | None,
    ) -> None:
        self._definition, self._config, self._source, self._store = definition, config, source, store
        self._changelog, self.scratch = changelog, scratch
        self._secrets, self._storage_secrets = secrets, storage_secrets
        self._number = 0
        self.schemas: dict[str, TableSchema] = {}

    def prepare_plan(
        self,
        tables: Sequence[str] | str = (),
        *,
        wait_s: float = 600.0,
        rules: TableRules = NO_RULES,
        never: Callable[[str], str] = lambda _: "",
    ) -> VerificationPlan:
        """Read the source, wait until the capture has come to the position of the rows, and write the plan into the scratch change log.

        :param tables: patterns of the tables to compare, a list or a text, as in ``table.include.list``; by default all that are captured
        :param wait_s: how long to wait for the capture, and then for the apply, seconds
        :param rules: by which the target keeps its tables: those that can never be compared are not read
        :param never: topic → why its table can never be compared, by the target's own configuration; empty if it can
        :raises ConfigError: no table is captured that is meant, or none of these can be compared
        :raises ConnectorHalted: the connector is paused or stopped before the position
        :raises TransientError: the capture does not come to the position in time
        """
        from airflow_provider_cdc.verify.verification_documents import VerificationPlan, why_not

        meant = self._meant(tables)
        topics = self._topics()
        by_rule = {table: why for table in meant if (why := why_not(rules.select_rule(table)) or never(topics(table)))}
        not_compared = by_rule | self._not_comparable(meant)
        left = [table for table in meant if table not in not_compared]
        if not left:
            raise self._nothing(not_compared)
        points: list[ReferencePoint] = []
        for attempt in range(1, _TRIES + 1):
            read = self._read(left)
            self.schemas |= read.schemas
            self._wait(read.position, wait_s)
            point = self._point(read)
            again = self._written_to(read, point) if attempt < _TRIES else {}
            points.append(replace(point, topics=tuple(sorted(read.schemas.keys() - again.keys()))))
            left = list(again.values())
            if not left:
                break
            log.info(
                "%s have no key, and their rows changed while they were read: they are read again.",
                ", ".join(map(str, left)),
            )
        plan = VerificationPlan(
            self._definition.name, self._definition.changelog, tuple(points), {topics(t): why for t, why in not_compared.items()}, wait_s,
            named=bool(tables),
        )  # fmt: skip
        plan.write(self.scratch.storage)
        return plan

    def build_repairs(self, verified: Mapping[str, Any]) -> list[TableRepair]:
        """Build the repairs of the tables that differ.

        :param verified: the result of the job
        :raises CdcError: the keys of rows that differ cannot be read
        """
        from airflow_provider_cdc.verify.table_repairs import repairs_of

        return repairs_of(self._definition.name, verified["tables"], self.schemas, self.scratch.storage)

    def send(self, repairs: Sequence[TableRepair], by: str) -> dict[str, int]:
        """Send the signals of repairs to the connector.

        :return: topic → number of its signal
        """
        from airflow_provider_cdc.core.model.connector_signal import SentSignal
        from airflow_provider_cdc.verify.table_repairs import signal_text

        numbers = {}
        for repair in (repair for repair in repairs if repair.signal is not None):
            sent = SentSignal(f"repair of {repair.topic}", "execute-snapshot", signal_text(repair), "airflow", None, by)
            numbers[repair.topic] = self._store.send(self._definition.name, sent)
        return numbers

    # -- which tables -----------------------------------------------------------------------------------------------------

    def _meant(self, patterns: Sequence[str] | str) -> list[TableId]:
        """List the tables that patterns name.

        :raises ConfigError: there is none, also of one of several patterns, or a pattern cannot be used
        """
        from pydantic import TypeAdapter, ValidationError

        from airflow_provider_cdc.core.config.capture_filters import Filters
        from airflow_provider_cdc.core.config.property_enums import Patterns

        filters, named = Filters(self._config), self._config.signal_data_collection
        hidden = None if named is None else self._source.signal_table(named)
        captured = [
            t
            for t in self._source.discover_tables(filters.is_table_captured)
            if filters.is_table_captured(t) and t != hidden
        ]
        try:
            parsed = TypeAdapter(Patterns).validate_python(patterns)
        except ValidationError as e:
            raise ConfigError(str(e.errors()[0]["ctx"]["error"]), safe="Nothing was read.") from None
        meant = [[t for t in captured if re.compile(pattern, re.IGNORECASE).fullmatch(str(t))] for pattern in parsed]
        matched = set(itertools.chain(*meant)) if parsed else set(captured)
        unmatched = [pattern for pattern, tables in zip(parsed, meant, strict=True) if not tables]
        if unmatched or not matched:
            names = ", ".join(sorted(map(str, captured))[:20]) or "none"
            raise ConfigError(
                f"No captured table of connector {self._definition.name} matches"
                + (f" {', '.join(unmatched)}." if unmatched else " the request."),
                where=f"captured tables: {names}",
                safe="Nothing was read.",
                remedy="use patterns that match whole names, <database>.<table>, as in table.include.list",
            )
        return sorted(matched, key=str)

    def _nothing(self, not_compared: Mapping[TableId, str]) -> ConfigError:
        reasons = [f"{table}: {why}" for table, why in sorted(not_compared.items(), key=str)]
        more = [f"and {len(reasons) - 20} more"] if len(reasons) > 20 else []
        return ConfigError(
            f"None of the {len(reasons)} selected tables of connector {self._definition.name} can be verified against the source.",
            where="; ".join(reasons[:20] + more),
            safe="Nothing was read.",
            remedy="select other tables with --tables: the source must contain the rows of a verified table",
        )

    def _not_comparable(self, tables: Collection[TableId]) -> dict[TableId, str]:
        """Find tables of which it cannot be known which rows the targets ought to have, and why."""
        from airflow_provider_cdc.core.config.base_configuration import PropertyEffect
        from airflow_provider_cdc.core.config.capture_filters import Filters
        from airflow_provider_cdc.core.config.property_enums import SnapshotQueryMode
        from airflow_provider_cdc.core.config.select_overrides import name_parts
        from airflow_provider_cdc.core.config.table_source_config import TableConfig

        config, filters = self._config, Filters(self._config)
        if isinstance(config, TableConfig) and config.snapshot_query_mode is SnapshotQueryMode.CUSTOM:
            return dict.fromkeys(tables, "snapshot.query.mode=custom selects the rows that are read")
        if left_out := config.leaves_out():
            return dict.fromkeys(tables, f"{', '.join(left_out)} leaves out changes of the table")
        fields = {str(field.alias): name for name, field in type(config).model_fields.items()}
        reasons: dict[TableId, str] = {}
        for table in tables:
            if not filters.is_snapshot_table(table):
                reasons[table] = "snapshot.include.collection.list leaves out its earlier rows"
            names = {tuple(name.split(".")) for name in (str(table), table.full_name)} | {(table.namespace, table.name)}
            for alias in (
                name for name, decides in config.list_capture_properties().items() if decides is PropertyEffect.QUERIES
            ):
                entries = getattr(config, fields[alias])
                if any(name_parts(name) in names for name in entries):
                    reasons[table] = f"{alias} selects the rows that are read"
        return reasons

    def _topics(self) -> Any:
        from airflow_provider_cdc.core.config.topic_names import TopicNames

        return TopicNames(self._config).resolve_topic

    # -- their rows -------------------------------------------------------------------------------------------------------

    def _read(self, tables: Collection[TableId]) -> _ReferenceRows:
        """Read tables into the scratch change log, all at one position."""
        from airflow_provider_cdc.changelog.files.scratch_change_log import scratch_folder
        from airflow_provider_cdc.core.model.schema_history import SchemaHistory
        from airflow_provider_cdc.state.state_store import StateStore

        self._number += 1
        definition = self._reference(tables)
        log.info("Reading the current rows of %d tables of the source.", len(tables))
        with scratch_folder() as folder:
            state = f"sqlite:///{folder}/state.db"
            with contextlib.closing(StateStore(state)) as store:
                store.create_tables()
            history = SchemaHistory.from_stored(self._store.load_schemas(self._definition.name))
            schemas_before = [schema for table in tables if (schema := history.find_schema(table)) is not None]
            with open_capture(
                definition, state, secrets=self._secrets, storage_secrets=self._storage_secrets, like=schemas_before
            ) as capture:
                result = capture.run()
        manifests = list(self.scratch.read_manifests(definition.name))
        self._refuse_fewer(len(manifests), max(result.batches, default=0))
        schemas: dict[str, TableSchema] = {}
        names = set(map(str, tables))
        for manifest in manifests:
            for topic, versions in manifest.schemas.items():
                newest = versions[max(versions, key=int)]
                if str(newest.id) in names:
                    schemas[topic] = newest
        position = manifests[-1].offset_after.position if manifests else None
        if position is None:
            raise TransientError(
                "The tables to verify no longer exist.",
                where=", ".join(sorted(names)),
                safe="Nothing was verified.",
                remedy="run the verification again",
            )
        log.info("%s rows were read at %s.", f"{result.events:,}", result.position)
        return _ReferenceRows(definition.name, self._source.parse_position(position), schemas, len(manifests))

    def _refuse_fewer(self, batches: int, written: int) -> None:
        """Reject a reference that lacks batches.

        :raises TransientError: a user has deleted batches of the reference
        """
        if batches != written:
            raise TransientError(
                f"The scratch change log has {batches} of the {written} batches that were written to it.",
                where=self.scratch.storage.url,
                safe="Nothing was verified or changed.",
                remedy="run the verification again, and do not delete its scratch change log while it runs",
            )

    def _reference(self, tables: Collection[TableId]) -> ConnectorDefinition:
        """Build the connector that reads the rows."""
        definition = self._definition
        name = f"{definition.name[:180]}-verify-{self._number}"
        own_properties = {
            key: value
            for key, value in definition.properties.items()
            if key == "signal.data.collection" or not key.startswith((*_NOT_FOR_A_REFERENCE, *self._config.TABLES))
        }
        properties = {
            **own_properties, "topic.prefix": self._config.topic_prefix, "snapshot.mode": "initial_only", "signal.enabled.channels": "airflow",
            self._config.TABLES[0]: [format_exact_pattern(table) for table in sorted(tables, key=str)],
        }  # fmt: skip
        return ConnectorDefinition(
            name, definition.source, self.scratch.storage.url, properties, definition.changelog_options
        )

    # -- after the read ---------------------------------------------------------------------------------------------------

    def _wait(self, position: Position, wait_s: float) -> None:
        """Wait until the connector's capture has come to a position."""
        name, until, logged = self._definition.name, time.monotonic() + wait_s, False
        while True:
            offset = self._store.load_offset(name).offset
            reached = None if offset is None or offset.position is None else offset.position
            if reached is not None and self._source.parse_position(reached).has_reached(position):
                return
            stands = (
                "nothing is captured yet" if reached is None else f"it is at {self._source.parse_position(reached)}"
            )
            control = self._store.load_control(name)
            if control.desired_state != "running":
                raise ConnectorHalted(
                    f"Connector {name} is {control.desired_state}, and has not reached {position}, the position of the reference: {stands}.",
                    safe="Nothing was verified or changed.",
                    remedy=f"run `{format_cdc_command('resume', name)}`, then run the verification again",
                )
            if time.monotonic() >= until:
                raise TransientError(
                    f"The capture of {name} has not reached {position}, the position of the reference, within {wait_s:.0f} s: {stands}.",
                    safe="Nothing was verified or changed.",
                    remedy=f"let the capture run (`{format_cdc_command('status', name)}` shows its state), then run the verification again; or increase the "
                    "time that the verification waits",
                )
            if not logged:
                log.info("Waiting for the capture to reach %s: %s.", position, stands)
                logged = True
            time.sleep(_LOOK_S)

    def _point(self, read: _ReferenceRows) -> ReferencePoint:
        """Find the first of the connector's batches that ends after the position.

        :raises TransientError: the change log does not go back so far
        """
        from airflow_provider_cdc.verify.verification_documents import ReferencePoint

        name, source = self._definition.name, self._source
        offset = self._store.load_offset(name).offset
        assert offset is not None
        first, before = offset.batch + 1, offset.position
        while first > 1:
            manifest = self._changelog.find_manifest(name, first - 1)
            if manifest is None and before is not None and read.position.has_reached(source.parse_position(before)):
                break  # where that one has ended, the next one says
            if manifest is None:
                raise TransientError(
                    f"Batch {first - 1} of the change log is needed but no longer exists: it ends after the position of the "
                    "reference.",
                    where=self._changelog.path_of(name, first - 1),
                    safe="Nothing was verified or changed.",
                    remedy="run the verification again, and keep batches in the change log for at least the duration of a verification",
                )
            end = manifest.offset_after.position
            if end is not None and read.position.has_reached(source.parse_position(end)):
                break
            first, before = first - 1, (manifest.offset_before.position if manifest.offset_before else None)
        straddles = before is None or not source.parse_position(before).has_reached(read.position)
        return ReferencePoint(
            read.name, read.position.to_json(), str(read.position), first, straddles, tuple(read.schemas), read.batches
        )

    def _written_to(self, read: _ReferenceRows, point: ReferencePoint) -> dict[str, TableId]:
        """Topic → table of those without a key that have events in the batch that the position is within."""
        if not point.straddles:
            return {}
        manifest = self._changelog.find_manifest(self._definition.name, point.first)
        topics = {f.topic for f in manifest.files} if manifest is not None else set[str]()
        return {topic: schema.id for topic, schema in read.schemas.items() if not schema.key and topic in topics}
