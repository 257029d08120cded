"""The commands about the server, its sessions and transactions, its parameters and fail points."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from bson import Int64, Timestamp
from bson.datetime_ms import DatetimeMS

from dev.servers.mongodb.operation import products, versions
from dev.servers.mongodb.operation.registry import command
from dev.servers.mongodb.replica_set import set_status
from dev.servers.mongodb.storage import reports, ttl
from dev.servers.mongodb.storage.node import now_ms
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError
from dev.servers.mongodb.wire import messages

if TYPE_CHECKING:
    from dev.servers.mongodb.operation.context import Context


def _date(milliseconds: int) -> DatetimeMS:
    return DatetimeMS(milliseconds)


def topology_version(context: Context) -> Document:
    """The version of what this member knows of the set."""
    node = context.server.node
    return {"processId": node.process, "counter": Int64(node.topology)}


@command("hello", open_to_all=True, lax=True)
async def hello(context: Context, body: Document) -> Document:
    """Describe this server and its abilities, as a client learns them first."""
    server, node = context.server, context.server.node
    await server.await_topology(body)
    legacy = context.name.lower() == "ismaster"
    reply: Document = {}
    if "helloOk" in body:
        reply["helloOk"] = True
    primary = "ismaster" if legacy else "isWritablePrimary"
    if server.router:
        reply |= {primary: True, "msg": "isdbgrid", "topologyVersion": topology_version(context)}
    elif node.settings.replica_set is None:
        reply |= {"topologyVersion": topology_version(context), primary: True}
    else:
        reply |= {"topologyVersion": topology_version(context), **set_status.hello(server.replication, primary)}
        if node.primary:
            reply["electionId"] = context.election_id()
        reply["lastWrite"] = _last_write(context)
    reply |= {
        "maxBsonObjectSize": 16777216,
        "maxMessageSizeBytes": messages.LARGEST_MESSAGE,
        "maxWriteBatchSize": 100000,
        "localTime": _date(now_ms()),
        "logicalSessionTimeoutMinutes": 30,
        "connectionId": context.connection.number if context.connection else 0,
        "minWireVersion": 0,
        "maxWireVersion": versions.wire_version(node.settings),
        "readOnly": False,
    }
    expected = [name for name in body.get("compression", []) if name in messages.COMPRESSORS]
    if expected:
        reply["compression"] = expected
    reply |= server.hello_auth(context, body)
    if body.get("loadBalanced") and node.settings.load_balanced:
        reply["serviceId"] = context.connection.service if context.connection else node.process
    return {**products.hello(node.settings.product, reply), "ok": 1.0}


def _last_write(context: Context) -> Document:
    node = context.server.node
    seen = {"ts": Timestamp(*node.seen), "t": Int64(node.term)}
    return {
        "opTime": node.last_optime(),
        "lastWriteDate": _date(node.oplog.last[0] * 1000),
        "majorityOpTime": seen,
        "majorityWriteDate": _date(node.seen[0] * 1000),
    }


@command("ping", open_to_all=True)
def ping(context: Context, body: Document) -> Document:
    """Answer."""
    return {"ok": 1.0}


@command("buildInfo", open_to_all=True)
def build_info(context: Context, body: Document) -> Document:
    """The version."""
    settings = context.server.node.settings
    reply = {
        "version": settings.version,
        "gitVersion": "nogit",
        "modules": [],
        "allocator": "system",
        "javascriptEngine": "none",
        "sysInfo": "deprecated",
        "versionArray": [*versions.version_of(settings), 0],
        "openssl": {"running": "stand-in", "compiled": "stand-in"},
        "bits": 64,
        "debug": False,
        "maxBsonObjectSize": 16777216,
        "ok": 1.0,
    }
    return products.build_info(settings.product, reply)


@command("serverStatus", lax=True)
def server_status(context: Context, body: Document) -> Document:
    """A part of what a server says of its state."""
    node = context.server.node
    return {
        "host": context.server.address,
        "version": node.settings.version,
        "process": "mongos" if context.server.router else "mongod",
        "pid": Int64(context.server.pid),
        "uptime": (now_ms() - node.started) // 1000 * 1.0,
        "localTime": _date(now_ms()),
        "connections": {
            "current": len(context.server.connections),
            "available": 50000,
            "totalCreated": context.server.connected,
        },
        "metrics": {"cursor": {"open": {"total": Int64(len(context.server.cursors))}}},
        "storageEngine": {
            "name": "stand-in",
            "supportsCommittedReads": True,
            "supportsSnapshotReadConcern": True,
            "readOnly": False,
            "persistent": True,
        },
        "ok": 1.0,
    }


@command("getParameter", lax=True)
def get_parameter(context: Context, body: Document) -> Document:
    """Parameters of the server; those that are asked for and not here are an error."""
    node = context.server.node
    known: Document = {
        "featureCompatibilityVersion": {"version": node.settings.version.rpartition(".")[0]},
        "periodicNoopIntervalSecs": int(node.settings.noop_seconds),
        "enableTestCommands": True,
        **{name: node.parameters[name] for name in sorted(ttl.PARAMETERS)},
        "authenticationMechanisms": ["SCRAM-SHA-1", "SCRAM-SHA-256", "MONGODB-X509"],
    }
    if body["getParameter"] == "*":
        return {**known, "ok": 1.0}
    out = {name: known[name] for name in body if name in known}
    if not out:
        raise MongoError(72, "no option found to get")
    return {**out, "ok": 1.0}


@command("setParameter", admin_only=True, lax=True)
def set_parameter(context: Context, body: Document) -> Document:
    """Parameters of the server that can be set here."""
    node = context.server.node
    if "periodicNoopIntervalSecs" in body:
        raise MongoError(20, "not allowed to change [periodicNoopIntervalSecs] at runtime")
    for name in ttl.PARAMETERS & body.keys():
        was, node.parameters[name] = node.parameters[name], body[name]
        return {"was": was, "ok": 1.0}
    if "notablescan" in body or "logLevel" in body:
        return {"was": False, "ok": 1.0}
    raise MongoError(72, f"attempted to set unrecognized parameter [{list(body)[1]}], use help:true to see options")


@command("getClusterParameter", admin_only=True, lax=True)
def get_cluster_parameter(context: Context, body: Document) -> Document:
    """The cluster parameter of the images' expiry."""
    node = context.server.node
    expected = body["getClusterParameter"]
    if expected not in ("changeStreamOptions", "*") and expected != ["changeStreamOptions"]:
        raise MongoError(72, f"Unknown server parameter: {expected}")
    expiry = node.parameters["image_expiry"]
    return {
        "clusterParameters": [
            {
                "_id": "changeStreamOptions",
                "clusterParameterTime": node.parameter_times.get("changeStreamOptions", Timestamp(0, 0)),
                "preAndPostImages": {"expireAfterSeconds": expiry},
            }
        ],
        "ok": 1.0,
    }


@command("setClusterParameter", admin_only=True)
def set_cluster_parameter(context: Context, body: Document) -> Document:
    """Set the expiry of the images."""
    node = context.server.node
    context.must_write()
    name, value = next(iter(body["setClusterParameter"].items()))
    if name != "changeStreamOptions":
        raise MongoError(72, f"Unknown server parameter: {name}")
    expiry = value["preAndPostImages"]["expireAfterSeconds"]
    if (isinstance(expiry, str) and expiry != "off") or (not isinstance(expiry, str) and int(expiry) <= 0):
        raise MongoError(2, "Expected a positive integer or 'off' for 'expireAfterSeconds'")
    node.parameters["image_expiry"] = expiry if expiry == "off" else Int64(expiry)
    node.parameter_times["changeStreamOptions"] = node.noop(
        {"msg": "cluster parameter", "image_expiry": node.parameters["image_expiry"]}
    )
    return {"ok": 1.0}


@command("listDatabases", "filter", "nameOnly", "authorizedDatabases", admin_only=True)
def list_databases(context: Context, body: Document) -> Document:
    """The databases."""
    from dev.servers.mongodb.query import queries

    node = context.server.node
    test = queries.compile_filter(body.get("filter", {}))
    names = sorted({*node.catalog.databases, "admin", "config", "local"})
    out = []
    for name in names:
        if not context.server.may_list(context, name):
            continue
        collections = node.catalog.databases.get(name, {})
        entry = {"name": name, "sizeOnDisk": Int64(reports.PAGE * 2 * max(len(collections), 1)), "empty": False}
        if test(entry):
            out.append({"name": name} if body.get("nameOnly") else entry)
    if body.get("nameOnly"):
        return {"databases": out, "ok": 1.0}
    total = sum(entry["sizeOnDisk"] for entry in out)
    return {"databases": out, "totalSize": Int64(total), "totalSizeMb": Int64(total // 2**20), "ok": 1.0}


@command("collStats", "scale")
def coll_stats(context: Context, body: Document) -> Document:
    """The statistics of a collection, or of the oplog."""
    name = body["collStats"]
    oplog = context.server.node.oplog
    if context.db == "local" and name == "oplog.rs":
        return {
            "ns": "local.oplog.rs", "size": oplog.size, "count": len(oplog.entries), "avgObjSize": oplog.size // max(len(oplog.entries), 1), "numOrphanDocs": 0,
            "storageSize": oplog.size, "freeStorageSize": 0, "capped": True, "max": Int64(0), "maxSize": Int64(oplog.limit), "nindexes": 0, "indexBuilds": [],
            "totalIndexSize": 0, "totalSize": oplog.size, "indexSizes": {}, "scaleFactor": 1, "ok": 1.0,
        }  # fmt: skip
    collection = context.collection(name)
    if collection is None:
        return {
            "ns": f"{context.db}.{name}",
            "size": 0,
            "count": 0,
            "numOrphanDocs": 0,
            "storageSize": 0,
            "totalSize": 0,
            "nindexes": 0,
            "totalIndexSize": 0,
            "indexDetails": {},
            "indexSizes": {},
            "scaleFactor": 1,
            "ok": 1.0,
        }
    return {"ns": collection.namespace, **reports.storage(collection), "ok": 1.0}


@command("dbStats", "scale", "freeStorage")
def db_stats(context: Context, body: Document) -> Document:
    """The statistics of a database."""
    return reports.database(context.db, list(context.server.node.catalog.databases.get(context.db, {}).values()))


@command("splitVector", lax=True)
def split_vector(context: Context, body: Document) -> Document:
    """Keys that split a collection into parts of a size."""
    limit = int(body.get("maxChunkSizeBytes", int(body.get("maxChunkSize", 0)) * 2**20))
    if not 2**20 <= limit <= 2**30:
        raise MongoError(72, "The specified max chunk size must lie within the range [1MB, 1024MB]")
    collection = context.server.node.catalog.find(body["splitVector"])
    if collection is None:
        raise MongoError(26, f"ns not found {body['splitVector']}")
    from dev.servers.mongodb.values.documents import encode

    keys, size = [], 0
    for document in collection.by_id():
        size += len(encode(document))
        if size > limit // 2:
            keys.append({"_id": document["_id"]})
            size = 0
    return {"splitKeys": keys, "ok": 1.0}


# fail points and logs


@command("configureFailPoint", "mode", "data", admin_only=True)
def configure_fail_point(context: Context, body: Document) -> Document:
    """Switch a fail point: ``failCommand`` is the one that is known."""
    name, mode = body["configureFailPoint"], body["mode"]
    if name != "failCommand":
        raise MongoError(72, f"Failpoint {name} is not known to this stand-in")
    server = context.server
    count = server.node.fail_points.get(name, {}).get("hits", 0)
    if mode == "off":
        server.node.fail_points.pop(name, None)
    else:
        times = None if mode == "alwaysOn" else int(mode["times"]) if "times" in mode else None
        skip = int(mode["skip"]) if isinstance(mode, dict) and "skip" in mode else 0
        server.node.fail_points[name] = {"left": times, "skip": skip, "data": body.get("data", {}), "hits": 0}
    return {"count": count, "ok": 1.0}


@command("getLog", admin_only=True)
def get_log(context: Context, body: Document) -> Document:
    """There is no log to give."""
    return {"totalLinesWritten": 0, "log": [], "ok": 1.0}


@command("hostInfo", admin_only=True)
def host_info(context: Context, body: Document) -> Document:
    """Describe the host that the server runs on."""
    return {
        "system": {"currentTime": _date(now_ms()), "hostname": context.server.address},
        "os": {},
        "extra": {},
        "ok": 1.0,
    }


@command("whatsmyuri", open_to_all=True)
def whats_my_uri(context: Context, body: Document) -> Document:
    """The client's address."""
    return {"you": "127.0.0.1:0", "ok": 1.0}


@command("getCmdLineOpts", admin_only=True)
def command_line(context: Context, body: Document) -> Document:
    """Return the options that the server was started with."""
    return {
        "argv": ["mongod"],
        "parsed": {"replication": {"replSetName": context.server.node.settings.replica_set}},
        "ok": 1.0,
    }


@command("getShardMap", admin_only=True)
def shard_map(context: Context, body: Document) -> Document:
    """Only members of a sharded cluster have one."""
    raise MongoError(203, "Sharding is not enabled")


@command("fsync", lax=True)
def fsync(context: Context, body: Document) -> Document:
    """All that is written is in the file already."""
    return {"numFiles": 1, "ok": 1.0}


def clock() -> int:
    """Seconds."""
    return int(time.time())


__all__: list[Any] = ["hello"]
