"""Delta tables, by path or by a name of the session's catalog.

The marker is Delta's own transaction identifier (``txn`` action: application id and version), which lands in the commit of the
data and makes a repeated commit of the same version a no-op. It is read back through the table's log object, for which Delta has
no SQL.

A table begins with the plainest protocol, which most readers know, unless its profile says otherwise. The first change that needs a
feature (a column that is renamed or widened) switches it on.

Columns are changed by ``ALTER TABLE`` before the data, in commits of their own; the table property ``cdc.columns`` says which schema
version that is on its way to, so that the next run finds its way after a kill.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import reduce
from operator import and_
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F

from airflow_provider_cdc.core.errors import ConfigError
from spark_jobs.datatypes import filled, literal, quoted
from spark_jobs.difference import Difference
from spark_jobs.last import ANEW, KEPT, OP
from spark_jobs.locations import is_path
from spark_jobs.targets.base import (
    NEVER,
    PLAIN_LAYOUT,
    Changes,
    Comments,
    Conflict,
    Evolution,
    Marker,
    Merge,
    Owner,
    Pinned,
    TableLayout,
    Target,
    Upkeep,
    Upkept,
)
from spark_jobs.targets.delta import columns
from spark_jobs.targets.delta.bag import BagCommit
from spark_jobs.targets.delta.commit import Commit, Delta, markers, size, too_large
from spark_jobs.targets.delta.copy_on_write import CopyOnWrite
from spark_jobs.targets.delta.files import DataFiles
from spark_jobs.targets.delta.layout import Layout, not_for
from spark_jobs.targets.delta.metrics import written
from spark_jobs.targets.delta.places import Name
from spark_jobs.targets.delta.upkeep import DeltaUpkeep

_C = TypeVar("_C", bound=Commit)
_TXN = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
_CONFLICTS = (
    "Concurrent",
    "DELTA_CONCURRENT",
    "MetadataChangedException",
    "ProtocolChangedException",
    "DELTA_METADATA_CHANGED",
    "DELTA_PROTOCOL_CHANGED",
    "DELTA_PATH_EXISTS",
)
_COLUMN_CONFLICTS = ("FIELD_ALREADY_EXISTS", "UNRESOLVED_COLUMN", "FIELD_NOT_FOUND")
"""What ``ALTER TABLE`` says when another run has made the same change a moment before."""
_VERSION, _VARIANTS = "cdc.columns", "cdc.variants"
# only properties with this beginning can be given with the rows of the first commit
_OWNER = "delta.cdc.connector", "delta.cdc.topic"
_RULE = "delta.cdc.rule"
_CREATING = "_cdc_creating"
"""File that names the owner of a table while it is being created."""
_VECTORS = {"delta.enableDeletionVectors": "true"}
"""Removing rows without rewriting files."""


class DeltaTarget(Target):
    """A Delta table; implements :class:`spark_jobs.targets.base.Target`."""

    def __init__(self, spark: SparkSession, location: str, *, profile: str = "compatible") -> None:
        super().__init__(spark, location, profile=profile)
        self._named = None if is_path(location) else Name(spark, location)
        self._folder = self._named.folder() if self._named else location

    @property
    def _name(self) -> str:
        return f"delta.{quoted(self._folder)}"

    def exists(self) -> bool:
        found = bool(self._log(fresh=True).tableExists())
        if found and self._named and self.owner() and not self._named.known():
            self._named.register(self._folder)  # whoever made it was killed before
        return found

    def strange(self, owner: Owner) -> str:
        folder, files = self._files()
        if not files.exists(folder):
            return ""
        names = [status.getPath().getName() for status in files.listStatus(folder)]
        # an empty one is being written by another run at this moment: whoever commits first has the table
        if not names or (_CREATING in names and self._creating() in ("", owner.app)):
            return ""
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return f"there is {', '.join(sorted(names)[:3])}{more}"

    def owner(self) -> Owner | None:
        found = self._configuration()
        return Owner(found[_OWNER[0]], found[_OWNER[1]]) if all(name in found for name in _OWNER) else None

    def claim(self, owner: Owner) -> None:
        with _conflicts():
            self._set(_owned(owner))

    def rule(self) -> str:
        return self._configuration().get(_RULE, "")

    def record_rule(self, rule: str) -> None:
        if rule != self.rule():
            with _conflicts():
                self._set({_RULE: rule})

    def variants(self) -> str:
        return self._configuration().get(_VARIANTS, "")

    def record_variants(self, text: str) -> None:
        with _conflicts():
            self._set({_VARIANTS: text})

    def markers(self) -> dict[str, int]:
        return markers(self.spark, self._log().unsafeVolatileSnapshot())

    def set_back(self, app: str) -> str:
        """Delta's RESTORE brings back files and columns, and leaves transaction identifiers as they are."""
        log, back = self._log(fresh=True), ""
        oldest = newest = int(log.unsafeVolatileSnapshot().version())
        for version in range(newest, -1, -1):
            actions = self._actions(log, version)
            if any(a["txn"]["appId"] == app for a in actions if "txn" in a):
                return back if oldest < version else ""
            for done in (a["commitInfo"] for a in actions if "commitInfo" in a):
                if done.get("operation") == "RESTORE":
                    back = f"RESTORE in version {version}"
                    to = done["operationParameters"].get("version")  # of a RESTORE by time there is none
                    oldest = min(oldest, -1 if to is None else int(to))
            if not actions:
                break  # older ones are cleaned up
        return back

    def _actions(self, log: Any, version: int) -> list[dict[str, Any]]:
        """What a version of the table changed; nothing if its log is not kept any more."""
        path = self._path(log.logPath(), f"{version:020d}.json")
        if not self._files()[1].exists(path):
            return []
        return [json.loads(line) for line in self._plain(log.store().read(path, log.newDeltaHadoopConf()))]

    def rows(self) -> DataFrame:
        return self.spark.read.format("delta").load(self._folder)

    def pinned(self) -> Pinned:
        snapshot = self._log().unsafeVolatileSnapshot()
        version = int(snapshot.version())
        # a frame without a version reads the newest one each time
        return Pinned(str(version), markers(self.spark, snapshot), self._at(version))

    def columns(self) -> dict[str, str]:
        return _columns(self.rows())

    def names(self) -> list[str]:
        # a frame of the table, which knows the types, takes longer than a small commit
        return [field["name"] for field in self._layout(self._log().unsafeVolatileSnapshot()).fields]

    def path(self) -> str:
        return self._folder

    def catalog(self) -> Mapping[str, str]:
        return self._named.catalog() if self._named else {}

    def size(self) -> int:
        return size(self._log().unsafeVolatileSnapshot())

    # -- columns ------------------------------------------------------------------------------------------------------

    def version(self, app: str) -> int:
        version, _, owner = self._configuration().get(_VERSION, "0").partition(" ")
        return int(version) if owner == app else 0

    def can_evolve(self, evolution: Evolution) -> bool:
        there = self.columns()
        can, gone = columns.can_evolve(evolution, there, self.location), evolution.going(there)
        return can and (not gone or self._drops(gone))

    def _drops(self, names: list[str]) -> bool:
        """Whether columns can be dropped in place: files have other names for columns than the table, and none of these has a say in the layout."""
        snapshot = self._log().unsafeVolatileSnapshot()
        laid_out = self._plain(snapshot.metadata().partitionColumns())
        clustered = self._class("org.apache.spark.sql.delta.skipping.clustering.ClusteredTableUtils")
        laid_out += [name for name in names if clustered.getClusteringColumnsOptional(snapshot).isDefined()]
        mapped = self._configuration().get("delta.columnMapping.mode", "none") != "none"
        return mapped and not {name.lower() for name in names} & {name.lower() for name in laid_out}

    def evolve(self, evolution: Evolution) -> dict[str, str | None]:
        with _conflicts(*_CONFLICTS, *_COLUMN_CONFLICTS):
            there = self.columns()
            statements = list(columns.statements(evolution, there, self.location))
            if statements:
                lacking = self._off(columns.features(evolution, there))
                self._set({_VERSION: f"{evolution.version} {evolution.app}", **lacking})
            for statement in statements:
                self._alter(statement)
        known = {name.lower() for name in there} | {new for _, new in columns.renames(evolution)}
        return {
            name: value
            for name, value in evolution.fills.items()
            if value is not None or (name.lower() in known and self._has_values(name))
        }

    def describe(self, comments: Comments) -> None:
        metadata = self._log(fresh=True).unsafeVolatileSnapshot().metadata()
        fields = json.loads(metadata.schemaString())["fields"]
        there = {field["name"]: field["metadata"].get("comment", "") for field in fields}
        with _conflicts():
            for statement in columns.commenting(comments, metadata.description() or "", there):
                self._alter(statement)

    def _alter(self, what: str) -> None:
        self.spark.sql(f"ALTER TABLE {self._name} {what}")

    def _set(self, properties: Mapping[str, str]) -> None:
        self._alter(f"SET TBLPROPERTIES ({_listed(properties)})")

    def _off(self, features: Mapping[str, str]) -> dict[str, str]:
        """Those of some features that the table does not have."""
        snapshot = self._log().unsafeVolatileSnapshot()
        on = self._configuration()
        supported = self._plain(snapshot.protocol().readerAndWriterFeatureNames())
        on.update({name: "supported" for name in columns.NTZ if name.removeprefix("delta.feature.") in supported})
        return {name: value for name, value in features.items() if on.get(name) != value}

    def _has_values(self, name: str) -> bool:
        return bool(self.rows().where(F.col(quoted(name)).isNotNull()).head(1))

    # -- rows ---------------------------------------------------------------------------------------------------------

    def check_layout(self, layout: TableLayout) -> None:
        if transforms := [name for name in layout.partition_by if name.endswith(")")]:
            raise ConfigError(
                f"partition_by: Delta tables are partitioned by columns, not by {transforms[0]!r}.",
                where=self.location,
                safe="The table was not made.",
                remedy='name a column; columns.computed makes one, for example {"day": "to_date(created_at)"}; or use cluster_by',
            )

    def create(self, rows: DataFrame, marker: Marker, layout: TableLayout = PLAIN_LAYOUT) -> None:
        self.check_layout(layout)
        writer = self._writer(rows, marker, "errorifexists")
        if layout.partition_by:
            writer = writer.partitionBy(*layout.partition_by)
        if layout.cluster_by:
            writer = writer.clusterBy(*layout.cluster_by)
        if layout.rule:
            writer = writer.option(_RULE, layout.rule)
        features = {**columns.needed(_columns(rows)), **(_VECTORS if self.profile == "fast" else {})}
        folder, files = self._files()
        self._write(_CREATING, marker.app)
        with _conflicts():
            writer.options(**features, **_owned(marker.owner)).save(self._folder)
        self._tell("create", marker)
        files.delete(self._path(folder, _CREATING), False)
        if self._named:
            self._named.register(self._folder)

    def merge(self, merge: Merge, marker: Marker) -> None:
        before = self._version()
        with _conflicts(), self._transaction(marker):
            self._builder(merge).execute()
        self._tell("merge", marker, before)

    def _builder(self, merge: Merge) -> Any:
        """Delta's own builder: it takes names and values as they are, without SQL text that would be parsed again."""

        def there(column: str) -> Expression:
            return F.col(f"t.{quoted(column)}")

        def new(column: str) -> Expression:
            return F.col(f"s.{quoted(column)}")

        op = F.col(f"s.{OP}")
        same = [there(c).eqNullSafe(new(c)) if c in merge.nullable else there(c) == new(c) for c in merge.key]
        if ANEW in merge.rows.columns:
            same.append(~F.col(f"s.{ANEW}"))
        kept = set(merge.types) - set(merge.key) if KEPT in merge.rows.columns else set()
        sets = {c: _kept(c, merge) if c in kept else new(c) for c in merge.types}
        table = self._class("io.delta.tables.DeltaTable").forPath(self.spark._jsparkSession, self._folder)
        builder = table.alias("t").merge(merge.rows.alias("s")._jdf, _java(reduce(and_, same)))
        builder = builder.whenMatched(_java(op == "d")).delete()
        builder = builder.whenMatched().update(self._assignments(sets))
        builder = builder.whenNotMatched(_java(op != "d")).insert(self._assignments({c: new(c) for c in merge.types}))
        if merge.fills:
            fills = {c: filled(value, merge.types[c]) for c, value in merge.fills.items()}
            builder = builder.whenNotMatchedBySource().update(self._assignments(fills))
        return builder

    def _assignments(self, values: Mapping[str, Expression]) -> Any:
        found = self._class("java.util.LinkedHashMap")()
        for name, value in values.items():
            found.put(quoted(name), _java(value))
        return found

    def refuses(self, *, inserts_only: bool) -> str:
        snapshot = self._log().unsafeVolatileSnapshot()
        layout = self._layout(snapshot)
        if reason := not_for(layout, [field["name"] for field in layout.fields]):
            return reason
        return "" if inserts_only else too_large(layout, snapshot)

    def upsert(self, changes: Changes, keys: Callable[[], DataFrame], marker: Marker) -> str:
        if (transaction := self._begin(marker)) is None:
            return ""
        version = str(int(transaction.snapshot().version()))
        if changes.made_from not in ("", version):
            raise Conflict(f"rows were made from version {changes.made_from}, and it is at {version} by now")
        layout = self._layout(transaction.snapshot())
        if reason := not_for(layout, changes.names):
            return reason
        commit = self._commit(Commit, transaction, layout)
        with _conflicts():
            reason = commit.write(changes, keys, marker)
        self.written = commit.written
        return reason

    def take(self, changes: Difference, marker: Marker) -> str:
        if (transaction := self._begin(marker)) is None:
            return ""
        layout = self._layout(transaction.snapshot())
        if reason := not_for(layout, changes.names, others=True):
            return reason
        commit = self._commit(BagCommit, transaction, layout)
        with _conflicts():
            commit.take(changes, marker)
        self.written = commit.written
        return ""

    def _begin(self, marker: Marker) -> Any:
        """A transaction at the newest version; nothing if the table has the batch."""
        none = self._class("scala.Option").empty()
        transaction = self._log(fresh=True).startTransaction(none, none)
        found = markers(self.spark, transaction.snapshot()).get(marker.app, NEVER)
        return None if found >= marker.batch else transaction

    def _commit(self, kind: type[_C], transaction: Any, layout: Layout) -> _C:
        folder, files = self._files()
        made = DataFiles(layout, folder, files, self._path)
        old = CopyOnWrite(made, files, self._path)
        return kind(self.spark, self._log(), transaction, layout, made, old, self._at)

    def _at(self, version: int) -> DataFrame:
        return self.spark.read.format("delta").option("versionAsOf", version).load(self._folder)

    def _layout(self, snapshot: Any) -> Layout:
        metadata = snapshot.metadata()
        return Layout(
            json.loads(metadata.schemaString())["fields"],
            self._plain(metadata.partitionColumns()),
            self._plain(metadata.configuration()),
            frozenset(self._plain(snapshot.protocol().readerAndWriterFeatureNames())),
        )

    def upkeep(self, keep: timedelta) -> Upkeep:
        steps = DeltaUpkeep(self.spark, self._folder, lambda: self._log(fresh=True), self._listing)
        named: dict[str, Callable[[], Upkept]] = {
            "compact": steps.compact,
            "checkpoint": steps.checkpoint,
            "remove old files": lambda: steps.remove_old_files(keep),
        }
        return {name: _or_conflict(step) for name, step in named.items()}

    def _listing(self) -> tuple[int, int]:
        folder, files = self._files()
        found = files.getContentSummary(folder)
        return int(found.getFileCount()), int(found.getLength())

    def append(self, rows: DataFrame, marker: Marker) -> None:
        there = {name.lower(): type_ for name, type_ in self.columns().items()}
        rows = rows.select(
            *[F.col(quoted(c)).cast(there.get(c.lower(), t)).alias(c) for c, t in _columns(rows).items()]
        )
        before = self._version()
        with _conflicts():
            self._writer(rows, marker, "append").save(self._folder)
        self._tell("append", marker, before)

    def replace(self, rows: DataFrame, marker: Marker) -> None:
        writer = self._writer(rows, marker, "overwrite")
        if self.columns() != _columns(rows):
            if lacking := self._off(columns.needed(_columns(rows))):
                with _conflicts():
                    self._set(lacking)
            partitions = self._plain(self._log().unsafeVolatileSnapshot().metadata().partitionColumns())
            kept = [name for name in partitions if name in rows.columns]
            writer = writer.option("overwriteSchema", "true").partitionBy(*kept)
        before = self._version()
        with _conflicts():
            writer.save(self._folder)
        self._tell("replace", marker, before)

    def rebuild(self, rows: DataFrame, marker: Marker) -> None:
        # a writer of Spark's does nothing for a batch that the table has already
        log, none, delta = self._log(fresh=True), self._class("scala.Option").empty(), Delta(self.spark)
        transaction = log.startTransaction(none, none)
        found = markers(self.spark, transaction.snapshot()).get(marker.app, NEVER)
        if found != marker.batch:
            raise Conflict(f"another run has brought it to batch {found}")
        with _conflicts():
            gone = [file.remove() for file in delta.files(transaction)]
            made = delta.plain(transaction.writeFiles(rows._jdf))
            delta.commit(transaction, [*gone, *made], marker.app, marker.batch)

    def _version(self) -> int:
        return int(self._log().unsafeVolatileSnapshot().version())

    def _tell(self, way: str, marker: Marker, before: int = -1) -> None:
        """Find what Spark has written in its commit, unless the batch was there already, or somebody else has committed since.

        :param before: the table's version before the write
        """
        log, version = self._log(), self._version()
        actions = self._actions(log, version) if version > before else []
        self.written = written(way, actions, marker)

    def _writer(self, rows: DataFrame, marker: Marker, mode: str) -> DataFrameWriter:
        # the option wins over a cluster's default, under which Delta replaces only the partitions that have rows
        writer = rows.write.format("delta").mode(mode).option("partitionOverwriteMode", "static")
        return writer.option("txnAppId", marker.app).option("txnVersion", marker.batch)

    @contextlib.contextmanager
    def _transaction(self, marker: Marker) -> Iterator[None]:
        """The marker for a SQL statement. Left behind in the session, it would make later statements silent no-ops."""
        for name, value in zip(_TXN, (marker.app, str(marker.batch)), strict=True):
            self.spark.conf.set(name, value)
        try:
            yield
        finally:
            for name in _TXN:
                self.spark.conf.unset(name)

    def _class(self, name: str) -> Any:
        """A class of the JVM by its full name. Looked up part by part (``_jvm.java.util``), each part is searched for in all jars."""
        return getattr(self.spark._jvm, name)

    def _plain(self, collection: Any) -> Any:
        """A collection of Scala as Python's, in one call: py4j's own has several for each value."""
        java = self._class("scala.jdk.javaapi.CollectionConverters").asJava(collection)
        return json.loads(self._class("com.fasterxml.jackson.databind.ObjectMapper")().writeValueAsString(java))

    def _path(self, *parts: Any) -> Any:
        """A path in Hadoop's words."""
        return self._class("org.apache.hadoop.fs.Path")(*parts)

    def _configuration(self) -> dict[str, str]:
        """The table's properties."""
        found: dict[str, str] = self._plain(self._log().unsafeVolatileSnapshot().metadata().configuration())
        return found

    def _files(self) -> tuple[Any, Any]:
        """The table's folder and its filesystem, in Hadoop's words."""
        folder = self._path(self._folder)
        return folder, folder.getFileSystem(self.spark._jsparkSession.sessionState().newHadoopConf())

    def _write(self, name: str, text: str) -> None:
        folder, files = self._files()
        stream = files.create(self._path(folder, name), True)
        stream.write(bytearray(text.encode()))
        stream.close()

    def _creating(self) -> str:
        """The owner for whom a table was being created."""
        folder, files = self._files()
        path = self._path(folder, _CREATING)
        stream = files.open(path)
        try:
            return bytes(stream.readNBytes(10_000)).decode()
        finally:
            stream.close()

    def _log(self, *, fresh: bool = False) -> Any:
        """Delta's own view of the table.

        :param fresh: look for commits of others first, which costs a listing
        """
        # threads of Python have no active session, without which Delta cannot read its own log
        spark = self.spark._jsparkSession
        self._class("org.apache.spark.sql.classic.SparkSession").setActiveSession(spark)
        log = self._class("org.apache.spark.sql.delta.DeltaLog").forTable(spark, self._folder)
        if fresh:
            nothing = self._class("scala.Option").empty()
            log.update(False, nothing, nothing)
        return log


def _owned(owner: Owner) -> dict[str, str]:
    return dict(zip(_OWNER, (owner.connector, owner.recorded.topic), strict=True))


def _listed(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{literal(name)} = {literal(value)}" for name, value in properties.items())


def _kept(column: str, merge: Merge) -> Expression:
    """The table's value where no event told one: what the fill makes of it, if there is one."""
    name = quoted(column)
    fills = merge.fills
    there = filled(fills[column], merge.types[column]) if column in fills else F.col(f"t.{name}")
    return F.when(F.array_contains(f"s.{KEPT}", F.lit(column)), there).otherwise(F.col(f"s.{name}"))


def _java(expression: Expression) -> Any:
    return expression._jc


def _columns(rows: DataFrame) -> dict[str, str]:
    return {f.name: f.dataType.simpleString() for f in rows.schema.fields}


def _or_conflict(step: Callable[[], Upkept]) -> Callable[[], Upkept]:
    def work() -> Upkept:
        with _conflicts():
            return step()

    return work


@contextlib.contextmanager
def _conflicts(*words: str) -> Iterator[None]:
    """Delta's ways of saying that another writer was faster."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as e:
        if any(word in f"{type(e).__name__} {e}" for word in words or _CONFLICTS):
            raise Conflict(str(e)) from e
        raise
