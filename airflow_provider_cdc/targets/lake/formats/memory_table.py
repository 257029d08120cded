"""Tables within the process: the reference implementation of a target, for tests of code that works on targets.

A table is an Arrow table with its owner and its markers; a commit replaces it.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_provider_cdc.changelog.reading.arrow_row_matching import match_keys
from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.lake.formats.format_descriptor import TableFormat
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import NEVER, Marker, ObservedProgress, Owner
from airflow_provider_cdc.targets.lake.formats.table_values import (
    NO_COMMENTS,
    PLAIN_LAYOUT,
    ColumnEvolution,
    KeyedChanges,
    KeyedMerge,
    PinnedTableState,
    TableComments,
    TableLayout,
    WriteConflict,
    WriteMetrics,
)
from airflow_provider_cdc.targets.lake.formats.target_interface import Target
from airflow_provider_cdc.targets.lake.rows.keyless_row_locator import locate_rows
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import OURS
from airflow_provider_cdc.targets.lake.rows.multiset_diff import MultisetDifference
from airflow_provider_cdc.targets.lake.rows.whole_table_rewrite import build_merged_table
from airflow_provider_cdc.targets.lake.spark_releases.python_features import collect_arrow, create_frame
from airflow_provider_cdc.targets.lake.types.spark_types import (
    build_fill_value,
    build_struct_type,
    can_hold_type,
    quote_name,
)

FORMAT = TableFormat("memory", "airflow_provider_cdc.targets.lake.formats.memory_table:MemoryTarget")


@dataclass(frozen=True, slots=True)
class MemoryTableState:
    """A table after some commit.

    :ivar number: of the commit; no other state has it
    """

    rows: pa.Table
    types: Mapping[str, str]
    owner: Owner | None = None
    markers: Mapping[str, int] = field(default_factory=dict)
    writers: Mapping[str, str] = field(default_factory=dict)
    version: tuple[str, int] = ("", 0)
    layout: TableLayout = PLAIN_LAYOUT
    comments: TableComments = NO_COMMENTS
    variants: str = ""
    number: int = field(init=False, default_factory=itertools.count().__next__)


_PLACE = f"{OURS}place"
STORED: dict[str, MemoryTableState | str] = {}
"""Location → its table, or a text about other content there."""
_LOCK = threading.Lock()


class MemoryTarget(Target):
    """A table in memory; implements :class:`airflow_provider_cdc.targets.lake.formats.target_interface.Target`."""

    def exists(self) -> bool:
        return isinstance(STORED.get(self.location), MemoryTableState)

    def find_foreign_content(self, owner: Owner) -> str:
        content = STORED.get(self.location)
        return f"the location contains {content}" if isinstance(content, str) else ""

    def read_owner(self) -> Owner | None:
        return self._there().owner

    def record_owner(self, owner: Owner) -> None:
        with self._commit() as there:
            STORED[self.location] = replace(there, owner=owner.recorded_owner)

    def read_rule(self) -> str:
        return self._there().layout.rule

    def record_rule(self, rule: str) -> None:
        with self._commit() as there:
            self.check_stand()
            STORED[self.location] = replace(there, layout=replace(there.layout, rule=rule))

    def read_variants(self) -> str:
        return self._there().variants

    def record_variants(self, text: str) -> None:
        with self._commit() as there:
            self.check_stand()
            STORED[self.location] = replace(there, variants=text)

    def read_markers(self) -> dict[str, int]:
        return dict(self._there().markers)

    def read_last_writer(self, app: str) -> str:
        return self._there().writers.get(app, "")

    def set_back(self, app: str) -> str:
        return ""  # nothing brings back rows without their marker

    def read_rows(self) -> DataFrame:
        there = self._there()
        return create_frame(self.spark, there.rows, build_struct_type(there.types))

    def pin_table_state(self) -> PinnedTableState:
        there = self._there()
        rows = create_frame(self.spark, there.rows, build_struct_type(there.types))
        return PinnedTableState(str(there.number), dict(there.markers), rows)

    def read_column_types(self) -> dict[str, str]:
        return dict(self._there().types)

    def count_file_bytes(self) -> int:
        return int(self._there().rows.nbytes)

    def observe_progress(self, app: str) -> ObservedProgress:
        there = self._there()
        return ObservedProgress(app, there.markers.get(app, NEVER), there.version[1] if there.version[0] == app else 0)

    # -- columns ------------------------------------------------------------------------------------------------------

    def read_schema_version(self, app: str) -> int:
        owner, version = self._there().version
        return version if owner == app else 0

    def can_evolve(self, evolution: ColumnEvolution) -> bool:
        there = self.read_column_types()
        for name, type_ in evolution.types.items():
            old = there.get(name, type_)
            if name not in evolution.fills and not (can_hold_type(old, type_) or can_hold_type(type_, old)):
                raise TargetError(
                    f"Column {name} has the type {old} in the table and needs the type {type_}.",
                    where=self.location,
                    safe="The table was not changed.",
                    remedy="move the table away",
                )
        return not {old for old, _ in evolution.renamed} & set(evolution.types)

    def evolve_columns(self, evolution: ColumnEvolution) -> dict[str, str | None]:
        came = {new: old for old, new in evolution.renamed}
        before = self._there()
        self.check_stand()
        goes = {old: new for new, old in came.items()}
        gone = evolution.list_dropped_columns(before.types)
        final = {goes.get(name, name): type_ for name, type_ in before.types.items() if name not in gone}
        for name, type_ in evolution.types.items():
            if not can_hold_type(final.get(name, type_), type_):
                final[name] = type_
            final.setdefault(name, type_)
        columns = [self._value(name, type_, before, came, evolution).alias(name) for name, type_ in final.items()]
        rows = _arrays(self.read_rows().select(*columns))
        with self._commit() as there:
            if there is not before:
                raise WriteConflict("another writer committed meanwhile")
            STORED[self.location] = replace(there, rows=rows, types=final, version=(evolution.app, evolution.version))
        self.changes_columns(evolution.version)
        return {}

    def write_comments(self, comments: TableComments) -> None:
        with self._commit() as there:
            columns = {**there.comments.columns, **comments.columns}
            merged = TableComments(
                comments.table or there.comments.table, {n: c for n, c in columns.items() if n in there.types}
            )
            STORED[self.location] = replace(there, comments=merged)

    @staticmethod
    def _value(
        name: str, type_: str, there: MemoryTableState, came: Mapping[str, str], evolution: ColumnEvolution
    ) -> Expression:
        if name in evolution.fills:
            return build_fill_value(evolution.fills[name], type_)
        old = came.get(name, name)
        source_name = next((n for n in (old, name) if n in there.types), None)
        return (F.lit(None) if source_name is None else F.col(quote_name(source_name))).cast(type_)

    # -- rows ---------------------------------------------------------------------------------------------------------

    def create(self, rows: DataFrame, marker: Marker, layout: TableLayout = PLAIN_LAYOUT) -> None:
        markers_and_writers = {marker.application_name: marker.batch}, {marker.application_name: marker.writer}
        state = MemoryTableState(
            _arrays(rows), _types(rows), marker.owner.recorded_owner, *markers_and_writers, layout=layout
        )
        with _LOCK:
            if isinstance(STORED.get(self.location), MemoryTableState):
                raise WriteConflict("the table exists now")
            STORED[self.location] = state
        self.written = WriteMetrics("create", state.rows.num_rows, 0)

    def merge(self, merge: KeyedMerge, marker: Marker) -> None:
        there = self.read_rows().select(
            *[
                (build_fill_value(merge.fills[c], merge.types[c]) if c in merge.fills else F.col(quote_name(c))).alias(
                    c
                )
                for c in self.read_column_types()
            ]
        )
        self._put("merge", build_merged_table(there, merge.rows, merge.key, dict(merge.types)), marker)

    def find_upsert_obstacle(self, *, inserts_only: bool) -> str:
        return ""

    def upsert_arrays(self, changes: KeyedChanges, keys: Callable[[], DataFrame], marker: Marker) -> str:
        there = self._there()
        if there.markers.get(marker.application_name, NEVER) >= marker.batch:
            return ""
        if changes.source_version not in ("", str(there.number)):
            raise WriteConflict("another writer committed after the rows were computed from the table")
        if set(changes.column_names) != set(there.types):
            return "its columns differ from the source columns"
        key_rows = pa.table(
            [changes.keys[name].cast(there.rows[name].type) for name in changes.keys.column_names],
            names=changes.keys.column_names,
        )
        stay = pa.array(~match_keys(there.rows.select(key_rows.column_names), key_rows))
        come = [part.select(there.rows.column_names).cast(there.rows.schema) for part in changes.read_rows()]
        rows = pa.concat_tables([there.rows.filter(stay), *come])
        self._put("commit", create_frame(self.spark, rows, build_struct_type(there.types)), marker)
        self.written = WriteMetrics("commit", changes.number_of_rows())
        return ""

    def apply_difference(self, changes: MultisetDifference, marker: Marker) -> str:
        if self.read_marker(marker.application_name) >= marker.batch:
            return ""
        there = collect_arrow(self.read_rows())
        numbers = pa.array(range(there.num_rows), pa.int64())
        fields = build_struct_type({**self.read_column_types(), _PLACE: "bigint"})
        placed = create_frame(self.spark, there.append_column(_PLACE, numbers), fields)
        taken = locate_rows(placed, changes, [_PLACE])
        stay = there.filter(pc.invert(pc.is_in(numbers, value_set=taken.places[_PLACE].combine_chunks())))
        come = changes.build_added_rows(taken).select(there.column_names).cast(there.schema)
        rows = pa.concat_tables([stay, come])
        self._put("commit", create_frame(self.spark, rows, build_struct_type(self.read_column_types())), marker)
        return ""

    def append(self, rows: DataFrame, marker: Marker) -> None:
        new = rows.select(
            *[
                (F.col(quote_name(c)) if c in rows.columns else F.lit(None)).cast(t).alias(c)
                for c, t in self.read_column_types().items()
            ]
        )
        self._put("append", self.read_rows().unionAll(new), marker)

    def replace(self, rows: DataFrame, marker: Marker) -> None:
        self._put("replace", rows, marker)

    def rebuild_rows(self, rows: DataFrame, marker: Marker) -> None:
        arrays = _arrays(rows)
        with self._commit() as there:
            if there.markers.get(marker.application_name, NEVER) != marker.batch:
                raise WriteConflict("another run has applied another batch")
            STORED[self.location] = replace(
                there, rows=arrays, writers={**there.writers, marker.application_name: marker.writer}
            )

    def _put(self, way: str, rows: DataFrame, marker: Marker) -> None:
        before = self._there()
        if before.markers.get(marker.application_name, NEVER) >= marker.batch:
            return
        arrays = _arrays(rows)
        with self._commit() as there:
            if there is not before:
                raise WriteConflict("another writer committed meanwhile")
            markers = {**there.markers, marker.application_name: marker.batch}
            writers = {**there.writers, marker.application_name: marker.writer}
            STORED[self.location] = replace(there, rows=arrays, types=_types(rows), markers=markers, writers=writers)
        self.written = WriteMetrics(way)

    def _there(self) -> MemoryTableState:
        state = STORED.get(self.location)
        if not isinstance(state, MemoryTableState):
            raise WriteConflict("the table no longer exists")
        return state

    @contextmanager
    def _commit(self) -> Iterator[MemoryTableState]:
        with _LOCK:
            yield self._there()


def _arrays(rows: DataFrame) -> pa.Table:
    """Rows, whose columns may all be NULL: Spark knows of some that no row is."""
    arrays = collect_arrow(rows)
    return arrays.cast(pa.schema([field.with_nullable(True) for field in arrays.schema]))


def _types(rows: DataFrame) -> dict[str, str]:
    return {f.name: f.dataType.simpleString() for f in rows.schema.fields}
