"""A Hive metastore, from the classes of Hive 2.3 that PySpark brings; what it knows is in a Derby database."""

import glob
import os
import socket
from typing import Any, ClassVar

import pyspark

from dev.servers.base import Server

CONSOLE = """\
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c: %m%n%ex
"""

LOCKLESS = {"hadoop.iceberg.engine.hive.lock-enabled": "false"}
"""For an Iceberg catalog of Spark."""


class HiveMetastore(Server):
    """Hive's own ``HiveMetaStore``, over Thrift. It asks no one for a password.

    It has no locks: Hive's tables for them are made by scripts that PySpark does not bring. Clients of Iceberg leave locks out with :data:`LOCKLESS`;
    from 2.3.10 on the metastore itself compares what a table was with what it is to be (HIVE-26882).
    """

    kind = "hive-metastore"
    # tables of Iceberg may change their columns; Hive's own default refuses that
    DEFAULTS: ClassVar[dict[str, Any]] = {"hive.metastore.disallow.incompatible.col.type.changes": "false"}
    user = ""
    password = ""

    @property
    def uri(self) -> str:
        """The value of ``hive.metastore.uris`` for clients."""
        return f"thrift://{self.host}:{self.port}"

    def connect(self, **overrides: Any) -> Any:
        """A socket to it; Thrift says nothing before it is asked."""
        return socket.create_connection((self.host, self.port), timeout=overrides.get("timeout", 5))

    def _prepare(self) -> None:
        self.data.mkdir(exist_ok=True)

    def _command(self) -> tuple[list[str], dict[str, str]]:
        sparks = glob.glob(os.path.join(os.path.dirname(pyspark.__file__), "jars", "*.jar"))
        settings = {
            "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={self.data}/metastore;create=true",
            "datanucleus.schema.autoCreateAll": "true",
            "hive.metastore.schema.verification": "false",
            "hive.metastore.warehouse.dir": f"{self.data}/warehouse",
            **self.options,
            # Spark has no other pool of connections
            "datanucleus.connectionPoolingType": "NONE",
        }
        home = os.environ.get("JAVA_HOME")
        given = [part for name, value in settings.items() for part in ("--hiveconf", f"{name}={value}")]
        opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.net", "java.lang", "java.util")]
        command = [f"{home}/bin/java" if home else "java", "-Xmx384m", *opens, "-cp", os.pathsep.join(sparks)]
        logs = self.data / "log4j2.properties"  # Hive's own settings need a library that Spark does not have
        logs.write_text("rootLogger.level = warn\nrootLogger.appenderRef.console.ref = console\n" + CONSOLE)
        options = [f"-Dlog4j.configurationFile={logs}", f"-Dderby.stream.error.file={self.data}/derby.log"]
        return [*command, *options, "org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(self.port), *given], {}

    def _answers(self) -> bool:
        try:
            self.connect().close()
        except OSError:
            return False
        return True
