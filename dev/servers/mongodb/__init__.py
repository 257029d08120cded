"""A test server that MongoDB's own drivers connect to. A stand-in: no line of it is MongoDB's, and it has never stood beside one.

Real are the drivers and the protocol between them and the server. What the server answers is checked against recordings of a MongoDB 8.0.10
(``tests/data/mongodb``): commands with their replies, and every event of every change stream. Passing a test here shows no more than those recordings
and the public documentation say.

>>> with MongoDb() as server:
...     server.connect().shop.orders.insert_one({"_id": 1})

It refuses a command, an option, a stage or an operator that it does not know with the server's error; it never answers such a one with nothing.

How it is made: each change is an entry of the oplog first, and the collections are what the entries make of them (:mod:`dev.servers.mongodb.storage.node`), on
the primary, on those that follow it, and after a kill. Change streams read the oplog (:mod:`dev.servers.mongodb.change_streams.streams`), and resume tokens have the
server's format (:mod:`dev.servers.mongodb.change_streams.tokens`). Filters, updates and expressions are written here and not taken from mongomock or montydb: those
work on Python's values, lose the widths of numbers and the types that Python has no order for, and do not say what an update changed, of which
the oplog is made.

What stands on MongoDB's manual, and on the texts of its errors, and on no recording: validators and ``$jsonSchema`` (:mod:`dev.servers.mongodb.storage.validators`),
stages that read other collections (:mod:`dev.servers.mongodb.query.joins`) or write (:mod:`dev.servers.mongodb.commands.outputs`), documents that expire
(:mod:`dev.servers.mongodb.storage.ttl`), arbiters, hidden members and those without a vote (:mod:`dev.servers.mongodb.replica_set.electorate`), shards that are removed
(:mod:`dev.servers.mongodb.sharding.draining`), versions before 8.0 (:mod:`dev.servers.mongodb.operation.versions`), products that are no MongoDB
(:mod:`dev.servers.mongodb.operation.products`), and operators of expressions beyond those of the recordings.

Where it differs from MongoDB, as far as is known:

* There is no storage engine: everything is in memory, and in one file per member that holds the whole oplog. Sizes in statistics are of the BSON.
* Views and time series are entries of the oplog of their own form; documents of a time series are stored one by one, not in buckets.
* Indexes are unique where they say so, expire documents, and are otherwise only listed. ``explain`` knows the index of ``_id`` and no other.
* Members speak a protocol of their own with each other, and elect within seconds.
* Collations are kept and shown, and not applied. ``$text``, geometry, JavaScript and encryption are not known.
* A transaction that makes a collection shows it to others before it commits.
* Operators on dates know the years 1 to 9999; ``$sin`` and its relatives no decimals. ``$setWindowFields``, ``$densify`` and ``$fill`` are refused, as is
  ``$out`` to a time series.
* ``serverStatus``, ``collStats`` and ``buildInfo`` are a part of the server's.

* A router's hash is not MongoDB's, so that documents lie on other shards. A retried
  write is done again there; a router asks no one who one is. Collections that are sharded are not renamed, and others do not leave their database's shard.
* A document that is resharded, or moved with its database, is where it was until all of them are; no one may write meanwhile. A router that is started again
  does not know the shards that were added.

Still to come: the rest of the recording ``sharded_resume``, members of priorities other than 0 and 1, and delayed ones.
"""

from dev.servers.mongodb.launch import MongoDb, ReplicaSet, ShardedCluster

__all__ = ["MongoDb", "ReplicaSet", "ShardedCluster"]
