"""Locations of Delta tables: in a folder, or in a folder that a catalog of the Spark session has a name for."""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import SparkSession

from airflow_provider_cdc.core.config.secret_redaction import strip_credentials
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.targets.lake.formats.table_location import split_table_name
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name, quote_text

_SESSION = "spark_catalog"
"""The catalog that chooses the places of tables itself: Spark's own, or the Hive metastore or Glue behind it."""


_ABOUT = {
    "type": "spark.sql.catalogImplementation",
    "uri": "spark.hadoop.hive.metastore.uris",
    "warehouse": "spark.sql.warehouse.dir",
}
_PLAIN = re.compile(r"[A-Za-z0-9_]+")
"""Names that Spark's own catalog takes."""


class CatalogTableName:
    """The name of a table in the session's catalog, ``spark_catalog.shop.orders``.

    The table itself is a folder below that of its schema, and is worked on there. The name is given to it right after it was made; if the run is
    killed in between, by the next one.

    :raises ConfigError: there can be no Delta table of this name
    """

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark, self._name = spark, name
        catalog, *others = split_table_name(name)
        if catalog.lower() != _SESSION or len(others) != 2:
            raise ConfigError(
                f"{name!r} is not a valid name for a Delta table.",
                safe="No table was changed.",
                remedy=f"use a name in the session's own catalog, {_SESSION}.{{database}}.{{table}}, or a path",
            )
        if odd := [part for part in others if not _PLAIN.fullmatch(part)]:
            raise ConfigError(
                f"The catalog does not accept the name {odd[0]!r}: names may contain only letters, digits and _.",
                where=name,
                safe="No table was changed.",
                remedy="set a path as the location of the table with a rule, for example /lake/{topic}; or leave it out with table.exclude.list",
            )
        self._schema, self._table = others

    def resolve_folder(self) -> str:
        """Return the table's folder: where the catalog says that it is, or where it would be.

        :raises ConfigError: the name is that of something else
        """
        if not self.is_registered():
            return self._folder_to_be()
        table = self._catalog().getTableMetadata(self._identifier())
        if (provider := table.provider()).isEmpty() or str(provider.get()).lower() != "delta":
            kind = "a view" if str(table.tableType().name()) == "VIEW" else "a table of another format"
            raise ConfigError(
                f"The name {self._name} is in use for {kind}.",
                safe="Nothing was changed.",
                remedy="give the table another location, or leave it out with table.exclude.list",
            )
        return self._text(table.location())

    def is_registered(self) -> bool:
        """Check whether the catalog has the name."""
        catalog = self._catalog()
        return bool(catalog.databaseExists(self._schema) and catalog.tableExists(self._identifier()))

    def describe_catalog(self) -> dict[str, str]:
        """Describe the catalog, as :meth:`airflow_provider_cdc.targets.lake.formats.target_interface.Target.describe_catalog`."""
        description = {"name": ".".join(split_table_name(self._name))}
        for name, key in _ABOUT.items():
            if value := self._spark.conf.get(key, None):
                description[name] = str(strip_credentials(key, value))
        return description

    def register(self, folder: str) -> None:
        """Give the table in a folder its name, if it has none yet."""
        schema = f"{quote_name(_SESSION)}.{quote_name(self._schema)}"
        self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {schema}")
        self._spark.sql(
            f"CREATE TABLE IF NOT EXISTS {schema}.{quote_name(self._table)} USING delta LOCATION {quote_text(folder)}"
        )

    def _folder_to_be(self) -> str:
        catalog = self._catalog()
        if catalog.databaseExists(self._schema):
            return self._text(catalog.defaultTablePath(self._identifier()))
        # where the schema will be once it is made; a mere look makes none
        return f"{self._spark.conf.get('spark.sql.warehouse.dir')}/{self._text(catalog.getDefaultDBPath(self._schema))}/{self._table.lower()}"

    def _text(self, uri: Any) -> str:
        """Format a location as Hadoop writes it, without the escapes of a URI."""
        return str(getattr(self._spark._jvm, "org.apache.spark.sql.catalyst.catalog.CatalogUtils").URIToString(uri))

    def _catalog(self) -> Any:
        return self._spark._jsparkSession.sessionState().catalog()

    def _identifier(self) -> Any:
        jvm: Any = self._spark._jvm
        some = getattr(jvm, "scala.Option").apply
        identifier_class = getattr(jvm, "org.apache.spark.sql.catalyst.TableIdentifier")
        return identifier_class(self._table, some(self._schema), some(_SESSION))
