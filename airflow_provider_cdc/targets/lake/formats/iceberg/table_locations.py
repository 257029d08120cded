"""Locations of Iceberg tables: in a folder, or in a catalog of the Spark session."""

from __future__ import annotations

import abc
import contextlib
import fcntl
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from airflow_provider_cdc.core.config.secret_redaction import strip_credentials
from airflow_provider_cdc.core.errors import ConfigError, TargetError
from airflow_provider_cdc.targets.lake.formats.creation_owner_file import CreationMarker
from airflow_provider_cdc.targets.lake.formats.iceberg.jvm_access import ICEBERG, extract_error_message, java_map
from airflow_provider_cdc.targets.lake.formats.jvm_errors import failed_with
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import Owner
from airflow_provider_cdc.targets.lake.formats.table_location import is_path, split_table_name
from airflow_provider_cdc.targets.lake.spark_releases.jvm_features import activate_session, load_jvm_class

_LOCK = "_cdc_lock"


class IcebergLocation(abc.ABC):
    """The place of one table, whether it exists or not."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self.spark, self.location = spark, location

    @abc.abstractmethod
    def load_table(self) -> Any:
        """Load the table as it is now (``org.apache.iceberg.Table``), ``None`` if there is none."""

    @abc.abstractmethod
    def find_foreign_content(self, owner: Owner) -> str:
        """Find the content there, as :meth:`airflow_provider_cdc.targets.lake.formats.target_interface.Target.find_foreign_content`."""

    @abc.abstractmethod
    def begin_creation(self, schema: Any, properties: Mapping[str, str]) -> Any:
        """Begin a transaction that creates the table."""

    @contextlib.contextmanager
    def mark_creation(self, owner: Owner) -> Iterator[None]:
        """While the table is created. A catalog has it whole or not at all: no file has to name its owner meanwhile."""
        yield

    def describe_catalog(self) -> Mapping[str, str]:
        """Describe the catalog, as :meth:`airflow_provider_cdc.targets.lake.formats.target_interface.Target.describe_catalog`."""
        return {}

    @contextlib.contextmanager
    def lock_metadata(self) -> Iterator[None]:
        """While the metadata are replaced. Where a store can do that by itself, there is nothing to do."""
        yield


class FolderLocation(IcebergLocation):
    """A folder of a filesystem or an object store: ``/lake/shop/orders``. It needs no catalog."""

    def load_table(self) -> Any:
        tables = self._tables()
        if not tables.exists(self.location):
            return None
        table = tables.load(self.location)
        if self._qualified(table.location()) != self._qualified(self.location):
            raise TargetError(
                f"The table in this folder records {table.location()} as its location: its files were moved or copied, but still refer to "
                "the other location.",
                where=self.location,
                safe="No table was changed.",
                remedy="move it back; or move it away and run the apply again, which rebuilds it from the change log",
            )
        return table

    def begin_creation(self, schema: Any, properties: Mapping[str, str]) -> Any:
        builder = self._tables().buildTable(self.location, schema)
        return builder.withProperties(java_map(self.spark, properties)).createTransaction()

    @contextlib.contextmanager
    def mark_creation(self, owner: Owner) -> Iterator[None]:
        with CreationMarker(self.spark, *self._files()).mark_creation(owner, lambda: self.load_table() is not None):
            yield

    def find_foreign_content(self, owner: Owner) -> str:
        return CreationMarker(self.spark, *self._files()).find_foreign_content(owner)

    @contextlib.contextmanager
    def lock_metadata(self) -> Iterator[None]:
        """On a local disk a renamed file takes the place of another one silently: two processes must not do it at once."""
        folder, files = self._files()
        if files.getUri().getScheme() != "file":
            yield
            return
        metadata = f"{folder.toUri().getPath()}/metadata"
        os.makedirs(metadata, exist_ok=True)
        with open(f"{metadata}/{_LOCK}", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _tables(self) -> Any:
        base, _, kind = self.location.rpartition("#")
        type_of = getattr(load_jvm_class(self.spark, f"{ICEBERG}.MetadataTableType"), "from")
        if base and type_of(kind) is not None:
            raise ConfigError(
                f"No Iceberg table can be at {self.location!r}: a location that ends with #{kind} is a view of a table's metadata.",
                safe="No table was changed.",
                remedy="leave the table out with table.exclude.list, or use another location, for example /lake/{topic}/rows",
            )
        return load_jvm_class(self.spark, f"{ICEBERG}.hadoop.HadoopTables")(self._conf())

    def _qualified(self, location: str) -> str:
        """Return a location with its scheme; those of S3 are one."""
        folder = self._path(location)
        return re.sub(r"^s3[an]:", "s3:", str(folder.getFileSystem(self._conf()).makeQualified(folder).toString()))

    def _conf(self) -> Any:
        return self.spark._jsparkSession.sessionState().newHadoopConf()

    def _path(self, *arguments: Any) -> Any:
        return load_jvm_class(self.spark, "org.apache.hadoop.fs.Path")(*arguments)

    def _files(self) -> tuple[Any, Any]:
        folder = self._path(self.location)
        return folder, folder.getFileSystem(self._conf())


class CatalogLocation(IcebergLocation):
    """A table of a catalog that the session's settings describe: ``lake.shop.orders``."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        super().__init__(spark, location)
        self._catalog_name, *self._levels, self._name = split_table_name(location)
        self._other = False

    def load_table(self) -> Any:
        try:
            catalog, identifier = self._catalog(), self._identifier()
            catalog.invalidateTable(identifier)  # it may have kept a table that is not there any more
            return catalog.loadTable(identifier)
        except (Py4JJavaError, PySparkException) as e:
            if not failed_with(e, "NoSuchTableException", "NoSuchIcebergTableException", "NoSuchNamespaceException"):
                raise
            self._other = failed_with(e, "NoSuchIcebergTableException")
            return None

    def begin_creation(self, schema: Any, properties: Mapping[str, str]) -> Any:
        catalog = self._catalog()
        self._make_namespaces()
        builder = catalog.buildTable(self._identifier(), schema)
        return builder.withProperties(java_map(self.spark, properties)).createTransaction()

    def describe_catalog(self) -> Mapping[str, str]:
        prefix = f"spark.sql.catalog.{self._catalog_name}."
        settings = {name: self.spark.conf.get(f"{prefix}{name}", None) for name in ("type", "uri", "warehouse")}
        properties = {
            name: str(strip_credentials(f"catalog.{name}", value)) for name, value in settings.items() if value
        }
        return {"name": ".".join((self._catalog_name, *self._levels, self._name)), **properties}

    def _make_namespaces(self) -> None:
        catalog = self.spark._jsparkSession.sessionState().catalogManager().catalog(self._catalog_name)
        for depth in range(1, len(self._levels) + 1):
            levels = self._array(self._levels[:depth])
            try:
                if not catalog.namespaceExists(levels):
                    catalog.createNamespace(levels, java_map(self.spark, {}))
            except (Py4JJavaError, PySparkException) as e:
                # some catalogs have none to be made; of two writers one makes it, and the error of the other one differs
                if not failed_with(e, "UnsupportedOperationException") and not catalog.namespaceExists(levels):
                    raise

    def find_foreign_content(self, owner: Owner) -> str:
        return "the location contains a table of another format" if self._other else ""

    def _catalog(self) -> Any:
        activate_session(self.spark)  # the settings of catalogs are looked up in the thread's session
        try:
            util = load_jvm_class(self.spark, f"{ICEBERG}.spark.Spark3Util")
            return util.loadIcebergCatalog(self.spark._jsparkSession, self._catalog_name)
        except (Py4JJavaError, PySparkException) as e:
            key = f"spark.sql.catalog.{self._catalog_name}"
            raise ConfigError(
                f"The session has no Iceberg catalog {self._catalog_name!r}: {extract_error_message(e)}",
                where=self.location,
                safe="No table was changed.",
                remedy=f"set {key}=org.apache.iceberg.spark.SparkCatalog and {key}.type (hadoop, rest, hive, jdbc, …), or give a path",
            ) from e

    def _array(self, texts: Sequence[str]) -> Any:
        array = self.spark.sparkContext._gateway.new_array(load_jvm_class(self.spark, "java.lang.String"), len(texts))  # type: ignore[union-attr]
        for at, text in enumerate(texts):
            array[at] = text
        return array

    def _identifier(self) -> Any:
        namespace = load_jvm_class(self.spark, f"{ICEBERG}.catalog.Namespace").of(self._array(self._levels))
        return load_jvm_class(self.spark, f"{ICEBERG}.catalog.TableIdentifier").of(namespace, self._name)


def resolve_location(spark: SparkSession, location: str) -> IcebergLocation:
    """Return the place that a location means.

    :raises ConfigError: it is neither a path nor the name of a table in a catalog
    """
    return FolderLocation(spark, location) if is_path(location) else CatalogLocation(spark, location)
