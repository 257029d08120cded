"""The change streams of several shards as one."""

from __future__ import annotations

import asyncio

from bson import Int64, Timestamp

from dev.servers.mongodb.sharding.router import Router, Shard
from dev.servers.mongodb.values.documents import Document


class MergedStream:
    """The streams of all shards as one: an event goes out when no shard can have an earlier one."""

    def __init__(self, router: Router, db: str, body: Document) -> None:
        self.router, self.db, self.body = router, db, body
        self.shards = [shard.another() for shard in router.shards.values()]
        self.ids: list[int] = []
        self.marks: list[Document] = []
        self.waiting: list[list[Document]] = []
        self.over = False
        self.high: Document = {}

    async def open(self) -> None:
        """Open the stream of each shard, at the same place."""
        spec = self.body["pipeline"][0]["$changeStream"]
        if not any(name in spec for name in ("resumeAfter", "startAfter", "startAtOperationTime")):
            await self._advance()
            spec = {**spec, "startAtOperationTime": Timestamp(self.router.time.time, self.router.time.inc + 1)}
        pipeline = [{"$changeStream": spec}, *self.body["pipeline"][1:]]
        ask = {**self.body, "pipeline": pipeline, "cursor": {"batchSize": 0}, "_standInShard": True}
        for shard in self.shards:
            await self._take(shard, ask)
        self.high = min(self.marks, key=lambda mark: mark["_data"])

    async def _take(self, shard: Shard, ask: Document) -> None:
        cursor = (await self.router.send(shard, self.db, ask))["cursor"]
        self.ids.append(cursor["id"])
        self.marks.append(cursor["postBatchResumeToken"])
        self.waiting.append([])

    async def _join(self) -> None:
        """Open the streams of shards that were added meanwhile, at the place where this one is."""
        known = {shard.name for shard in self.shards}
        for name in [name for name in self.router.shards if name not in known]:
            shard = self.router.shards[name].another()
            spec = self.body["pipeline"][0]["$changeStream"]
            rest = {
                option: value for option, value in spec.items() if option not in ("startAfter", "startAtOperationTime")
            }
            pipeline = [{"$changeStream": {**rest, "resumeAfter": self.high}}, *self.body["pipeline"][1:]]
            await self._take(
                shard, {**self.body, "pipeline": pipeline, "cursor": {"batchSize": 0}, "_standInShard": True}
            )
            self.shards.append(shard)

    async def _leave(self) -> None:
        """Let go of shards that were removed, when all that they had was delivered: nothing is written there any more."""
        for number in reversed(range(len(self.shards))):
            if self.shards[number].name in self.router.shards:
                continue
            await self._fill(number)
            if not self.waiting[number]:
                await self._close(number)
                for part in (self.shards, self.ids, self.marks, self.waiting):
                    del part[number]

    async def _advance(self) -> None:
        """Have shards on which nothing happens say so: their time continues."""
        await self.router.every(
            list(self.router.shards.values()),
            "admin",
            {"appendOplogNote": 1, "data": {"msg": "noop for a change stream"}},
        )

    async def batch(self, count: int | None) -> list[Document]:
        """The next events."""
        await self._join()
        await self._leave()
        await asyncio.gather(*(self._fill(number) for number in range(len(self.shards)) if not self.waiting[number]))
        out: list[Document] = []
        while not self.over and (count is None or len(out) < count):
            safe = (
                min(mark["_data"] for mark, waiting in zip(self.marks, self.waiting, strict=True) if not waiting)
                if not all(self.waiting)
                else None
            )
            number = min(
                (number for number, waiting in enumerate(self.waiting) if waiting),
                key=lambda number: self.waiting[number][0]["_id"]["_data"],
                default=None,
            )
            if number is None or (safe is not None and self.waiting[number][0]["_id"]["_data"] > safe):
                break
            event = self.waiting[number].pop(0)
            await self._look_up(event)
            out.append(event)
            self.high = event["_id"]
            self.over = event.get("operationType") == "invalidate"
            if not self.waiting[number] and self.ids[number]:
                await self._fill(number)
        least = min(self.marks, key=lambda mark: mark["_data"])
        if not self.over and not any(self.waiting) and least["_data"] > self.high["_data"]:
            self.high = least
        return out

    async def _look_up(self, event: Document) -> None:
        """Put in the document that the event's shard did not have any more: a router looks wherever it is now.

        Stages behind ``$changeStream`` have seen the event without it, unlike a router's.
        """
        spec = self.body["pipeline"][0]["$changeStream"]
        if spec.get("fullDocument") != "updateLookup" or event.get("operationType") != "update":
            return
        if event.get("fullDocument", event) is not None:
            return
        db, name = event["ns"]["db"], event["ns"]["coll"]
        sharded = await self.router.config("collections", {"_id": f"{db}.{name}"})
        if sharded and event.get("collectionUUID", sharded[0]["uuid"]) != sharded[0]["uuid"]:
            return  # resharding has given the collection another UUID: that of the event is not there any more
        ask = {"find": name, "filter": event["documentKey"], "limit": 1}
        for shard in await self.router.owners(db, name):
            found = (await self.router.send(shard, db, ask))["cursor"]["firstBatch"]
            if found:
                event["fullDocument"] = found[0]

    async def _fill(self, number: int) -> None:
        if not self.ids[number]:
            return
        name = self.body["aggregate"] if isinstance(self.body["aggregate"], str) else "$cmd.aggregate"
        ask = {"getMore": Int64(self.ids[number]), "collection": name, "maxTimeMS": 1}
        cursor = (await self.router.send(self.shards[number], self.db, ask))["cursor"]
        self.waiting[number] += cursor["nextBatch"]
        self.marks[number], self.ids[number] = cursor["postBatchResumeToken"], cursor["id"]

    async def close(self) -> None:
        """Close the streams of the shards."""
        for number in range(len(self.shards)):
            await self._close(number)

    async def _close(self, number: int) -> None:
        name = self.body["aggregate"] if isinstance(self.body["aggregate"], str) else "$cmd.aggregate"
        if cursor := self.ids[number]:
            await self.router.send(self.shards[number], self.db, {"killCursors": name, "cursors": [Int64(cursor)]})
