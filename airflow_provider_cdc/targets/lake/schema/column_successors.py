"""Columns of the table that get no values any more, and the new columns that they continue in.

The source has dropped them, or they continue in a new column, as the source gave them a type that does not hold their old values.

``amount`` of type ``int`` that becomes a text continues in ``amount__v_string``; ``amount`` stays in the table, with the values that it had. Other tools
call such a column a *variant* (dlt, which names it so). The table records which schema version each variant began with: names are decided once,
and found again by a run after a kill, by a rollback, and whatever the rule says later.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from airflow_provider_cdc.changelog.reading.pending_batches import (
    PendingBatches,
    base_version,
    left_behind,
    names_at,
    trace_columns,
)
from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.core.model.table_schema import Column, TableChange, TableSchema
from airflow_provider_cdc.targets.lake.events import event_reduction
from airflow_provider_cdc.targets.lake.formats.target_interface import Target
from airflow_provider_cdc.targets.lake.formats.target_roles import TargetIdentity
from airflow_provider_cdc.targets.lake.rules.projection import Projection, RetiredColumn, lower_names
from airflow_provider_cdc.targets.lake.types.spark_types import find_common_type, spark_type

log = logging.getLogger("airflow_provider_cdc.targets.lake.schema.column_successors")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class ColumnVariants:
    """The record that a table has of its variants.

    :param until: schema version up to which everything is decided
    :param names: schema version → column of the source → its column in the table, from that version on: those that are not called as the
        rule says
    :param began: schema version → column of the source that continued in a new column then → the table's column that it left
    """

    until: int = 0
    names: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    began: Mapping[int, Mapping[str, str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.names)

    def select_names(self, version: int) -> Mapping[str, str]:
        """Column of the source → its column in the table, in the table's rows of a schema version.

        >>> ColumnVariants(3, {3: {"n": "n__v_string"}}).select_names(4)
        {'n': 'n__v_string'}
        """
        latest = max((v for v in self.names if v <= version), default=None)
        return {} if latest is None else self.names[latest]

    def format_record(self, app: str) -> str:
        """Format the variants as the table records them.

        Schema versions are those of an application name (:attr:`airflow_provider_cdc.targets.lake.formats.owners_and_markers.Owner.application_name`).
        """
        names = {str(v): dict(columns) for v, columns in self.names.items()}
        began = {str(v): dict(columns) for v, columns in self.began.items()}
        return json.dumps({"app": app, "until": self.until, "names": names, "began": began}, ensure_ascii=False)


def read_recorded_variants(target: TargetIdentity, app: str) -> ColumnVariants:
    """Return the variants that a table has; none if they are those of another owner."""
    text = target.read_variants()
    record = json.loads(text) if text else {}
    if record.get("app") != app:
        return ColumnVariants()
    names = {int(v): dict(names) for v, names in record["names"].items()}
    return ColumnVariants(
        int(record["until"]), names, {int(v): dict(columns) for v, columns in record["began"].items()}
    )


def project_recorded_version(target: TargetIdentity, app: str, shape: Projection, version: int) -> Projection:
    """Return the shape of the rows that a table has at a schema version."""
    variants = read_recorded_variants(target, app)
    return replace(shape, variants=variants.select_names(version)) if variants else shape


def resolve_variants(
    target: Target, pending: PendingBatches, app: str, shape: Projection
) -> tuple[PendingBatches, Projection]:
    """Return pending batches and the shape of their table, with the columns that get no values any more.

    Such columns continue in new ones, or stay though the source drops them.

    Decisions are recorded before anything else of these batches is written.

    :return: the batches, in whose changes a column that continues in a new one is dropped and added; and the shape that has the new names
    :raises TargetError: a column cannot continue in a new one
    """
    recorded, new_columns = read_recorded_variants(target, app), shape.rule.type_changes == "new_column"
    keeps = _keeps(target, pending, shape)
    if not (recorded or ((new_columns or keeps) and pending.changes)):
        return pending, shape
    if not pending.changes:
        return pending, replace(shape, variants=recorded.select_names(pending.schema_version))
    # steps that a killed run has begun in place, without a record, need no variants
    known_until = replace(recorded, until=max(recorded.until, target.read_schema_version(app)))
    way = _VariantResolver(target, pending, shape, known_until, new_columns=new_columns, keeps=keeps)
    resolved = way.resolve_versions()
    if resolved != recorded and (resolved or recorded):
        target.record_variants(resolved.format_record(app))
    return way.build_pending(), way.build_projection()


def _keeps(target: Target, pending: PendingBatches, shape: Projection) -> frozenset[int]:
    """Find schema versions that drop columns which stay in the table, and get the values of events before."""
    if shape.rule.dropped_columns != "keep" or (shape.mode == "current" and not pending.schema.key):
        return frozenset()  # rows without a key are followed through their columns (:mod:`airflow_provider_cdc.targets.lake.write.column_drop_stages`)
    if not (drops := {v: gone for v in pending.changes if (gone := left_behind(pending, v))}):
        return frozenset()
    cut = _cut(target, pending, shape)
    versions = [file.schema_version for _, file in pending.files if file.last_seq > cut]
    first, base = min(versions, default=pending.schema_version), base_version(pending)

    def came(version: int, column: str) -> bool:
        """Return whether a column has come since, too."""
        return version - 1 > base and trace_columns(pending, base, version - 1)[column].column is None

    return frozenset(v for v, gone in drops.items() if first < v or (not cut and any(came(v, c) for c in gone)))


def _cut(target: Target, pending: PendingBatches, shape: Projection) -> int:
    """Return the number of the event behind which the table begins; 0 if its rows and columns stay.

    A column that is dropped before the table is read again, or emptied, does not stay.
    """
    if shape.mode != "current" or shape.rule.type_changes == "new_column":
        return 0
    return event_reduction.last_truncate(target.spark, pending)


@dataclass
class _VariantResolver:
    """From the columns that a table has to those that the newest version of its source has, version by version."""

    target: Target
    whole: PendingBatches
    plain: Projection
    recorded: ColumnVariants
    new_columns: bool
    keeps: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self.types = {name.lower(): type_ for name, type_ in self.target.read_column_types().items()}
        """Column of the table, in lower case → its type."""
        base = base_version(self.whole)
        self.placed = self._all(self.recorded.select_names(base), names_at(self.whole, base))
        """Column of the source → its column in the table."""
        self.names: dict[int, Mapping[str, str]] = {base: self.recorded.select_names(base)}
        self.began: dict[int, Mapping[str, str]] = {}
        self.behind = lower_names(
            left for v, columns in self.recorded.began.items() if v <= base for left in columns.values()
        )
        """Columns of the table that others have continued."""
        self.left: dict[str, RetiredColumn] = {}

    def resolve_versions(self) -> ColumnVariants:
        for version in sorted(self.whole.changes):
            change, schema = self.whole.changes[version], self.whole.schemas[version]
            if self.plain.rule.dropped_columns == "drop":
                for name in change.dropped:
                    self.types.pop(self.placed.get(name, "").lower(), None)
            if version <= self.recorded.until:
                placed = self._all(self.recorded.select_names(version), schema.column_names)
                new = list(self.recorded.began.get(version, ()))
            else:
                placed, new = self._decide(change, schema)
            if version in self.keeps:
                self._keep(version)
            left = {name: self._leave(version, change.renamed.get(name, name), placed[name]) for name in new}
            self._take(change, schema, placed, new)
            self.names[version] = {c: name for c, name in placed.items() if name != self.plain.map_column_name(c)}
            self.began[version] = left
            self.behind |= lower_names(left.values())
        return self._recorded()

    def build_pending(self) -> PendingBatches:
        """Return the batches with changes by which nothing of a column goes into its new one."""
        changes = dict(self.whole.changes)
        for version, columns in self.began.items():
            change = changes[version]
            changes[version] = change.model_copy(update={"added": {**change.added, **dict.fromkeys(columns)}})
        return replace(self.whole, changes=changes)

    def build_projection(self) -> Projection:
        live = lower_names(self.placed.values())
        left = {name: retired for name, retired in self.left.items() if name.lower() not in live}
        # rows that are not identified by one key are followed through their columns
        cut = event_reduction.last_truncate(self.target.spark, self.whole) if self.plain.mode == "current" else 0
        if left and self.plain.mode != "log" and event_reduction.key_changed(self.whole, cut):
            left = {}
        return replace(self.plain, variants=self.names[self.whole.schema_version], versions=self.names, left=left)

    # -- one version --------------------------------------------------------------------------------------------------

    def _decide(self, change: TableChange, schema: TableSchema) -> tuple[dict[str, str], list[str]]:
        """Column of the source → its column in the table, and those that begin."""
        came = {
            c.name: self._came(change, c.name) for c in schema.columns if self.plain.map_column_name(c.name) is not None
        }
        goes = {old.lower() for old in came.values() if old is not None}
        stays = set(self.types) - goes
        """Columns of the table that no column of the source continues: they are not written over."""
        rule = self.plain.rule
        rule_columns = lower_names(
            [*rule.constant_columns, *rule.columns.computed, *rule.metadata_columns, *self.plain.map_flag_types()]
        )
        wished = lower_names(str(self.plain.map_column_name(c)) for c in came)
        placed: dict[str, str] = {}
        new: list[str] = []
        for name, old in came.items():
            column, plain = schema.get_column(name), str(self.plain.map_column_name(name))
            wants, taken = self._type(column), lower_names(placed.values())
            lower = plain.lower()
            if old is not None and (change.renamed.get(name, name) == name or lower == old.lower()):
                successor = old
            elif (
                lower in taken
                or lower in self.behind
                or (self.new_columns and lower in stays and (old is not None or self._differs(lower, wants)))
            ):
                has = None if old is None else self.types.get(old.lower())
                successor = _free(
                    plain,
                    (find_common_type(has, wants) if has else None) or wants,
                    {*self.types, *rule_columns, *wished, *taken},
                )
            else:
                successor = plain
            if self.new_columns and old is not None and self._differs(old.lower(), wants):
                self._check(column, schema, self.types[old.lower()], wants)
                successor = _free(plain, wants, {*self.types, *rule_columns, *wished, *taken})
                new.append(name)
            placed[name] = successor
        return placed, new

    def _came(self, change: TableChange, name: str) -> str | None:
        """Return the table's column that a column of the source continues."""
        return None if name in change.added else self.placed.get(change.renamed.get(name, name))

    def _differs(self, there: str, required: str) -> bool:
        """Return whether the table has a column whose type and another one have no room for the values of both."""
        return there in self.types and find_common_type(self.types[there], required) is None

    def _leave(self, version: int, column: str, new: str) -> str:
        """Leave a column of the table without values from this version on.

        :return: its name
        """
        old = self.placed[column]
        log.info(
            "%s: column %s continues in the new column %s; %s stays unchanged.", self.whole.topic, column, new, old
        )
        schema = self.whole.schemas.get(version - 1)
        type_ = self.types.get(old.lower()) or (self._type(schema.get_column(column)) if schema else "")
        if type_:
            self.left[old] = RetiredColumn(version, column, type_)
        return old

    def _keep(self, version: int) -> None:
        """Keep for dropped columns the values of earlier events."""
        for column in left_behind(self.whole, version):
            there = self.placed.get(column, "")
            if type_ := self.types.get(there.lower()):
                self.left[there] = RetiredColumn(version, column, type_)

    def _take(self, change: TableChange, schema: TableSchema, placed: Mapping[str, str], new: Collection[str]) -> None:
        """Give the table the columns of a version."""
        types, live = dict(self.types), lower_names(placed.values())
        for name, there in placed.items():
            old = None if name in new else self._came(change, name)
            if old is not None and old.lower() not in live:
                types.pop(old.lower(), None)
            has, wants = self.types.get((old or there).lower()), self._type(schema.get_column(name))
            types[there.lower()] = (find_common_type(has, wants) if has else None) or wants
        self.types, self.placed = types, dict(placed)

    def _recorded(self) -> ColumnVariants:
        base = base_version(self.whole)
        before = {v: names for v, names in self.recorded.names.items() if v <= base}
        began = {v: names for v, names in self.recorded.began.items() if v <= base}
        at: Mapping[str, str] = self.recorded.select_names(base)
        for version in sorted(self.whole.changes):
            if self.names[version] != at:
                before[version] = at = self.names[version]
        began |= {v: names for v, names in self.began.items() if names}
        return ColumnVariants(self.whole.schema_version, before, began) if before else ColumnVariants()

    def _all(self, names: Mapping[str, str], columns: Iterable[str]) -> dict[str, str]:
        placed = {name: names.get(name) or self.plain.map_column_name(name) for name in columns}
        return {name: there for name, there in placed.items() if there is not None}

    def _type(self, column: Column) -> str:
        casts = {name.lower(): type_ for name, type_ in self.plain.rule.columns.cast.items()}
        return casts.get(column.name.lower()) or spark_type(column.type)

    def _check(self, column: Column, schema: TableSchema, there: str, wants: str) -> None:
        """Check that rows are not identified by the values of a column.

        :raises TargetError: the values of the column identify rows
        """
        if column.name in schema.key:
            why = f"column {column.name} is part of the key, and its values identify rows"
        elif not schema.key and self.plain.mode != "log":
            why = "the table has no key, so all values of a row identify it"
        else:
            return
        raise TargetError(
            f"Column {column.name} of {schema.id} has the type {there} in the table and needs the type {wants}, but it cannot continue in a new column: {why}.",
            where=f"{self.target.location}, batches {self.whole.first} to {self.whole.last}",
            safe="The table was not changed; the change log keeps the batches.",
            remedy="set type_changes: rewrite in the rule of the table; if the new type cannot hold some of the values, snapshot the source table "
            "again (schema.change.rewrite.mode=snapshot does so after such a change)",
        )


def _free(plain: str, type_: str, taken: Collection[str]) -> str:
    """Return a name for a column of a type that nothing has yet.

    >>> _free("n", "decimal(9,2)", {"n", "n__v_decimal"})
    'n__v_decimal_2'
    """
    match = _WORD.match(type_)
    assert match is not None
    first = name = f"{plain}__v_{match[0]}"
    number = 1
    while name.lower() in taken:
        number += 1
        name = f"{first}_{number}"
    return name
