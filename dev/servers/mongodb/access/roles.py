"""Roles: the actions that each gives, and on what. After the server's manual, "Built-In Roles"."""

from __future__ import annotations

from dataclasses import dataclass

from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError

READ = frozenset(
    {
        "find",
        "changeStream",
        "collStats",
        "dbStats",
        "dbHash",
        "killCursors",
        "listCollections",
        "listIndexes",
        "planCacheRead",
        "listSearchIndexes",
    }
)
WRITE = READ | {
    "insert", "update", "remove", "createCollection", "createIndex", "dropCollection", "dropIndex", "convertToCapped", "renameCollectionSameDB",
}  # fmt: skip
DB_ADMIN = frozenset(
    {"collMod", "collStats", "compact", "convertToCapped", "createCollection", "createIndex", "dbHash", "dbStats", "dropCollection", "dropDatabase", "dropIndex",
     "enableProfiler", "listCollections", "listIndexes", "planCacheRead", "planCacheWrite", "reIndex", "renameCollectionSameDB", "storageDetails", "validate"}
)  # fmt: skip
USER_ADMIN = frozenset(
    {
        "changeCustomData",
        "changePassword",
        "createRole",
        "createUser",
        "dropRole",
        "dropUser",
        "grantRole",
        "revokeRole",
        "viewRole",
        "viewUser",
    }
)
MONITOR_CLUSTER = frozenset(
    {"checkFreeMonitoringStatus", "connPoolStats", "getClusterParameter", "getCmdLineOpts", "getDefaultRWConcern", "getLog", "getParameter", "getShardMap",
     "hostInfo", "inprog", "listDatabases", "listSessions", "listShards", "netstat", "replSetGetConfig", "replSetGetStatus", "serverStatus", "shardingState", "top"}
)  # fmt: skip
MANAGER_CLUSTER = frozenset(
    {"addShard", "appendOplogNote", "cleanupOrphaned", "flushRouterConfig", "getClusterParameter", "setClusterParameter", "listShards", "removeShard",
     "replSetConfigure", "replSetGetConfig", "replSetGetStatus", "replSetStateChange", "resync", "setFeatureCompatibilityVersion", "listSessions"}
)  # fmt: skip
MANAGER_DB = frozenset(
    {
        "enableSharding",
        "moveChunk",
        "splitChunk",
        "splitVector",
        "refineCollectionShardKey",
        "reshardCollection",
        "analyzeShardKey",
    }
)
HOST_MANAGER = frozenset(
    {
        "applicationMessage",
        "closeAllDatabases",
        "connPoolSync",
        "flushRouterConfig",
        "fsync",
        "invalidateUserCache",
        "killAnyCursor",
        "killAnySession",
        "killop",
        "logRotate",
        "resync",
        "setParameter",
        "shutdown",
        "touch",
        "unlock",
    }
)
MONITOR_DB = frozenset({"collStats", "dbStats", "getShardVersion", "indexStats", "useUUID"})
EVERYTHING = "*"


@dataclass(frozen=True)
class Privilege:
    """Actions on a resource: the cluster, or databases and collections, where None is any."""

    actions: frozenset[str]
    cluster: bool = False
    db: str | None = None
    collection: str | None = None

    def covers(self, action: str, db: str, collection: str | None) -> bool:
        """Check whether it allows an action on a collection, or on a database as a whole."""
        if self.cluster or (action not in self.actions and EVERYTHING not in self.actions):
            return False
        if self.db is not None and self.db != db:
            return False
        if self.db is None and db in ("local", "config") and EVERYTHING not in self.actions:
            return False
        if self.collection is not None:
            return self.collection == collection
        return (
            collection is None
            or not collection.startswith("system.")
            or (self.db is None and EVERYTHING in self.actions)
        )

    def covers_cluster(self, action: str) -> bool:
        """Check whether it allows an action on the deployment."""
        return self.cluster and (action in self.actions or EVERYTHING in self.actions)

    def covers_all(self, action: str) -> bool:
        """Check whether it allows an action on every database."""
        return (
            not self.cluster
            and self.db is None
            and self.collection is None
            and (action in self.actions or EVERYTHING in self.actions)
        )


def builtin(role: str, db: str) -> list[Privilege] | None:
    """The privileges of a built-in role of a database; None when there is none of that name."""
    on_db = {
        "read": READ,
        "readWrite": WRITE,
        "dbAdmin": DB_ADMIN,
        "userAdmin": USER_ADMIN,
        "dbOwner": WRITE | DB_ADMIN | USER_ADMIN,
    }
    if role in on_db:
        return [Privilege(on_db[role], db=db)]
    if db != "admin":
        return None
    anywhere = {
        "readAnyDatabase": READ,
        "readWriteAnyDatabase": WRITE,
        "dbAdminAnyDatabase": DB_ADMIN,
        "userAdminAnyDatabase": USER_ADMIN,
    }
    databases = Privilege(frozenset({"listDatabases"}), cluster=True)
    if role in anywhere:
        return [Privilege(anywhere[role]), databases]
    monitor = [
        Privilege(MONITOR_CLUSTER, cluster=True),
        Privilege(MONITOR_DB),
        Privilege(READ, db="config"),
        Privilege(READ, db="local"),
    ]
    manager = [
        Privilege(MANAGER_CLUSTER, cluster=True),
        Privilege(MANAGER_DB),
        Privilege(WRITE, db="config"),
        Privilege(WRITE, db="local"),
    ]
    host = [Privilege(HOST_MANAGER, cluster=True)]
    if role == "backup":
        return [Privilege(READ), Privilege(MONITOR_CLUSTER | {"appendOplogNote"}, cluster=True)]
    if role == "restore":
        return [Privilege(WRITE | DB_ADMIN), databases]
    if role == "root" or role == "__system":
        return [Privilege(frozenset({EVERYTHING})), Privilege(frozenset({EVERYTHING}), cluster=True)]
    parts = {
        "clusterMonitor": monitor,
        "clusterManager": manager,
        "hostManager": host,
        "clusterAdmin": [*monitor, *manager, *host, Privilege(frozenset({"dropDatabase"}))],
    }
    return parts.get(role)


def of_document(privilege: Document) -> Privilege:
    """A privilege as ``createRole`` has it."""
    resource = privilege["resource"]
    actions = frozenset(privilege["actions"])
    if resource.get("cluster"):
        return Privilege(actions, cluster=True)
    if resource.get("anyResource"):
        return Privilege(actions or frozenset({EVERYTHING}))
    if "db" not in resource or "collection" not in resource:
        raise MongoError(9, "resource must have db and collection, or cluster")
    return Privilege(actions, db=resource["db"] or None, collection=resource["collection"] or None)
