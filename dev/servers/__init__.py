"""Real servers for tests, demonstrations and benchmarks, each private to the process that starts it.

>>> with MariaDb({"binlog_row_image": "MINIMAL"}) as server:
...     server.sql("SELECT @@binlog_row_image")
[('MINIMAL',)]

All have ``start``, ``stop``, ``kill`` (SIGKILL), ``restart(**options)`` and ``close``, are context managers, and say
where they are: ``host``, ``port``, ``user``, ``password``, ``log``; databases also have ``socket``, ``sql``,
``connect`` and ``url``. They end with the process that started them, even when that is killed.
"""

from dev.servers.base import Server
from dev.servers.db2 import Db2
from dev.servers.hive_metastore import HiveMetastore
from dev.servers.iceberg_rest import IcebergRest
from dev.servers.kafka import Kafka
from dev.servers.mariadb import MariaDb
from dev.servers.mongodb.launch import MongoDb, ReplicaSet, ShardedCluster
from dev.servers.mysql import MySql
from dev.servers.mysql_family import CAPTURE_PRIVILEGES, Database
from dev.servers.oracle import Oracle
from dev.servers.postgres import Postgres
from dev.servers.process import ServerError
from dev.servers.s3 import S3
from dev.servers.spark import SparkCluster
from dev.servers.sshd import Sshd

__all__ = [
    "CAPTURE_PRIVILEGES",
    "S3",
    "Database",
    "Db2",
    "HiveMetastore",
    "IcebergRest",
    "Kafka",
    "MariaDb",
    "MongoDb",
    "MySql",
    "Oracle",
    "Postgres",
    "ReplicaSet",
    "Server",
    "ServerError",
    "ShardedCluster",
    "SparkCluster",
    "Sshd",
]
