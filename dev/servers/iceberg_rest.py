"""Iceberg's REST catalog, as its own tests run it: tables are files, their places are in a SQLite file."""

import glob
import os
import urllib.error
import urllib.request
from typing import Any

import pyspark

from dev.bootstrap import jars
from dev.servers.base import Server


class IcebergRest(Server):
    """Iceberg's reference server (``RESTCatalogServer`` over a ``JdbcCatalog``). It asks no one for a password."""

    kind = "iceberg-rest"
    user = ""
    password = ""

    @property
    def uri(self) -> str:
        """The value of a catalog's property ``uri``."""
        return f"http://{self.host}:{self.port}"

    def connect(self, **overrides: Any) -> Any:
        """The answer to a request for the server's settings."""
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            f"{self.uri}/v1/config", timeout=overrides.get("timeout", 5)
        ) as answer:
            return answer.read()

    def _prepare(self) -> None:
        self.data.mkdir(exist_ok=True)

    def _command(self) -> tuple[list[str], dict[str, str]]:
        own = [str(path) for path in jars.ensure("iceberg-rest", "sqlite")]
        sparks = glob.glob(os.path.join(os.path.dirname(pyspark.__file__), "jars", "*.jar"))  # Hadoop, Jackson, Avro
        environment = {
            "CATALOG_REST_PORT": str(self.port),
            "CATALOG_WAREHOUSE": self.data.as_uri(),
            "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
            "CATALOG_URI": f"jdbc:sqlite:{self.data}/catalog.db",
            "CATALOG_JDBC_USER": "cdc",
            "CATALOG_JDBC_PASSWORD": "cdc",
            "CATALOG_IO__IMPL": "org.apache.iceberg.hadoop.HadoopFileIO",
        }
        home = os.environ.get("JAVA_HOME")
        command = [f"{home}/bin/java" if home else "java", "-Xmx256m", "-cp", os.pathsep.join(own + sparks)]
        return [*command, "org.apache.iceberg.rest.RESTCatalogServer"], environment

    def _answers(self) -> bool:
        try:
            return bool(self.connect())
        except OSError:
            return False
