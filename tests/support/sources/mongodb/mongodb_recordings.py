"""Plays recordings of a real MongoDB against a server, and lists what differs (``tests/data/mongodb``).

A recording has a name, a topic, what it is about, a topology and steps, documents in canonical extended JSON. Kinds of step: ``run`` (a command on a
database with its ``reply`` or ``error``), ``open`` (a change stream), ``getMore`` (one batch of it), ``begin``, ``commit``, ``abort`` (a transaction of
a named session), ``kill`` (a stream's cursor), ``note``. What differs on every server is compared by the part it plays, not by its value:
:class:`EquivalentReplies`.
"""

import itertools
import json
import re
import time
from pathlib import Path
from typing import Any

import zstandard
from bson import SON, Int64
from bson.raw_bson import RawBSONDocument
from pymongo.errors import PyMongoError

from tests.support.sources.mongodb.mongodb_json import RAW, command, read

DATA = Path(__file__).parents[3] / "data" / "mongodb" / "recordings.jsonl.zst"


def scenarios() -> dict[str, dict[str, Any]]:
    """The recordings by name."""
    lines = zstandard.ZstdDecompressor().stream_reader(DATA.read_bytes()).read().decode().splitlines()
    return {scenario["name"]: scenario for scenario in map(json.loads, lines)}


def play_scenario(client: Any, scenario: dict[str, Any]) -> list[str]:
    """Play a recording after dropping its databases, and return the differences."""
    for database in {step.get("run") or step.get("db") for step in scenario["steps"]} - {
        None,
        "admin",
        "config",
        "local",
    }:
        client.drop_database(database)
    return Player(client, scenario).play()


class EquivalentReplies:
    """The replies of two servers, compared in all that both must agree on.

    Resume tokens, cluster times, UUIDs of collections and numbers of transactions differ from server to server.
    The first meeting pairs them off, and from then on the pairs must hold: the same token, time, UUID or transaction on
    one side is the same on the other. The server's clock in a value (a date or timestamp of 2026 or later) matches any such clock.
    """

    PAIRED = {
        "_id._data": "token",
        "postBatchResumeToken._data": "token",
        "clusterTime": "time",
        "collectionUUID": "uuid",
        "dropTarget": "uuid",
    }
    ANY = {
        "lsid",
        "txnNumber",
        "errmsg",
        "wallTime",
        "electionId",
        "hash",
        "connectionId",
        "operationTime",
        "$clusterTime",
        "atClusterTime",
        "uuid",
        "host",
        "setVersion",
        "localTime",
        "topologyVersion",
        "lastWrite",
        "clusterParameterTime",
    }

    def __init__(self):
        self.pairs = {}

    def pair(self, kind, want, got, path):
        w, g = json.dumps(want), json.dumps(got)
        known = self.pairs.setdefault((kind, w), g)
        back = self.pairs.setdefault((kind, "of this server", g), w)
        return (
            [] if known == g and back == w else [f"{path}: {kind} {w[:70]} is {g[:70]} here, but {known[:70]} before"]
        )

    @staticmethod
    def now(value):
        """Check whether a value is the server's clock at the time of the command: a date or timestamp of 2026 or later."""
        if set(value) == {"$timestamp"}:
            return value["$timestamp"]["t"] >= 1767225600
        return set(value) == {"$date"} and 1767225600000 <= int(value["$date"]["$numberLong"]) < 4102444800000

    def differences(self, want, got, path=""):  # noqa: C901 — one branch a kind of value
        name = path.rsplit(".", 1)[-1]
        if name in self.ANY:
            return []
        kind = self.PAIRED.get(name) or self.PAIRED.get(".".join(path.rsplit(".", 2)[-2:]))
        if kind:
            return self.pair(kind, want, got, path)
        if isinstance(want, dict) and isinstance(got, dict):
            if self.now(want) and self.now(got):
                return []
            out = []
            if "txnNumber" in want and "txnNumber" in got:
                out += self.pair(
                    "transaction", [want.get("lsid"), want["txnNumber"]], [got.get("lsid"), got["txnNumber"]], path
                )
            if [k for k in want if k in got] != [k for k in got if k in want]:
                out.append(f"{path}: order of fields {list(want)} / {list(got)}")
            for k in want:
                if k not in got:
                    if k not in self.ANY:
                        out.append(f"{path}.{k}: missing")
                else:
                    out += self.differences(want[k], got[k], f"{path}.{k}")
            out += [f"{path}.{k}: not in the recording" for k in got if k not in want and k not in self.ANY]
            return out
        if isinstance(want, list) and isinstance(got, list):
            out = [] if len(want) == len(got) else [f"{path}: {len(want)} items recorded, {len(got)} now"]
            for i, (w, g) in enumerate(zip(want, got, strict=False)):
                out += self.differences(w, g, f"{path}[{i}]")
            return out
        if isinstance(want, dict) and set(want) == {"$repeated", "times"}:
            return [] if got == want["$repeated"] * want["times"] else [f"{path}: another text"]
        if isinstance(want, dict) and set(want) == {"$long", "length"}:
            return [] if isinstance(got, str) and len(got) == want["length"] else [f"{path}: another text"]
        if isinstance(want, str) and isinstance(got, str):  # a collection that the server made for a moment
            want, got = (re.sub(r"^tmp\w{5}\.", "tmp.", text) for text in (want, got))
        return [] if want == got else [f"{path}: recorded {json.dumps(want)[:120]}, now {json.dumps(got)[:120]}"]


def _clock(timestamp):
    return timestamp["$timestamp"]["t"], timestamp["$timestamp"]["i"]


def dropped_in_any_order(events):
    """The events with each run of `drop` sorted by collection: a server drops a database's collections in no fixed order."""
    out = []
    for drop, run in itertools.groupby(events, lambda event: event.get("operationType") == "drop"):
        out += sorted(run, key=lambda event: event["ns"]["coll"]) if drop else list(run)  # noqa: B031 — each run is used once
    return out


def _error(e):
    details = getattr(e, "details", None)
    if details and "code" in details:
        details = read(details.raw) if isinstance(details, RawBSONDocument) else details
        return {
            k: int(details[k]["$numberInt"]) if isinstance(details[k], dict) else details[k]
            for k in ("code", "codeName", "errorLabels")
            if k in details
        }
    return {"client": type(e).__name__}


class Player:
    """Replays one scenario; `differences` gathers what was not as recorded."""

    def __init__(self, client, scenario, patience=10.0):
        self.client, self.scenario, self.patience = client, scenario, patience
        self.alike, self.differences = EquivalentReplies(), []
        self.sessions, self.streams, self.cursors, self.tokens, self.times = {}, {}, {}, {}, {}

    def play(self):
        steps = self.scenario["steps"]
        i = 0
        while i < len(steps):
            step = steps[i]
            kind = next(
                k for k in ("run", "open", "getMore", "begin", "commit", "abort", "kill", "end", "note") if k in step
            )
            if kind == "getMore":
                run = [step]
                while i + 1 < len(steps) and steps[i + 1].get("getMore") == step["getMore"] and "error" not in run[-1]:
                    i += 1
                    run.append(steps[i])
                self.batches(run, f"step {i}")
            elif kind != "note":
                getattr(self, kind)(step, f"step {i}")
            i += 1
        for stream in self.streams.values():
            stream["session"].end_session()
        return self.differences

    def mapped(self, ext):
        """The command with the recorded tokens, times and cursor ids replaced by this server's."""
        if isinstance(ext, list):
            return [self.mapped(x) for x in ext]
        if isinstance(ext, dict):
            if set(ext) == {"_data"} and isinstance(ext["_data"], str):
                return {"_data": self.tokens.get(ext["_data"], ext["_data"])}
            if set(ext) == {"$timestamp"}:
                t, inc = ext["$timestamp"]["t"], ext["$timestamp"]["i"]
                for back in (0, 1):
                    if (t, inc - back) in self.times:
                        x, y = self.times[t, inc - back]
                        return {"$timestamp": {"t": x, "i": y + back}}
                return ext
            if set(ext) == {"$numberLong"} and int(ext["$numberLong"]) in self.cursors:
                return {"$numberLong": str(self.cursors[int(ext["$numberLong"])])}
            return {k: self.mapped(v) for k, v in ext.items()}
        return ext

    def learn(self, want, got):
        if isinstance(want, dict) and isinstance(got, dict):
            for holder in ("_id", "postBatchResumeToken"):
                w, g = want.get(holder), got.get(holder)
                if isinstance(w, dict) and isinstance(g, dict) and "_data" in w and "_data" in g:
                    self.tokens.setdefault(w["_data"], g["_data"])
            w, g = want.get("clusterTime"), got.get("clusterTime")
            if w and g:
                self.times.setdefault(_clock(w), _clock(g))

    def outcome(self, step, where, reply=None, failure=None, keys=("reply",)):
        if failure is not None:
            actual, want = _error(failure), step.get("error")
            if want is None:
                self.differences.append(f"{where}: failed with {actual}, recorded as successful")
            else:
                want = {k: want[k] for k in ("code", "codeName", "errorLabels", "client") if k in want}
                self.differences += self.alike.differences(want, actual, where)
        elif "error" in step:
            self.differences.append(
                f"{where}: succeeded, recorded error {step['error'].get('codeName', step['error'])}"
            )
        else:
            self.differences += self.alike.differences(step.get("reply"), reply, where)

    def run(self, step, where):
        if "reply" not in step and "error" not in step:
            return
        session = self.sessions.get(step.get("session"))
        try:
            raw = self.client[step["run"]].command(
                command(self.mapped(step["command"])), codec_options=RAW, session=session
            )
        except PyMongoError as failure:
            self.outcome(step, where, failure=failure)
            return
        reply = {k: v for k, v in read(raw.raw).items() if k not in ("$clusterTime", "operationTime")}
        if "configureFailPoint" in step["command"]:
            reply.pop("count", None)
        old, new = step.get("reply", {}).get("cursor", {}), reply.get("cursor", {})
        if isinstance(old, dict) and "id" in old and "id" in new:
            self.cursors[int(old["id"]["$numberLong"])] = int(new["id"]["$numberLong"])
            old["id"], new["id"] = ({"$numberLong": "1" if int(c["id"]["$numberLong"]) else "0"} for c in (old, new))
            if "atClusterTime" in old and "atClusterTime" in new:
                self.times[_clock(old["atClusterTime"])] = _clock(new["atClusterTime"])
        self.outcome(step, where, reply)

    def begin(self, step, where):
        session = self.sessions.setdefault(step["begin"], self.client.start_session(causal_consistency=False))
        session.start_transaction()

    def commit(self, step, where):
        self.sessions[step["commit"]].commit_transaction()

    def abort(self, step, where):
        self.sessions[step["abort"]].abort_transaction()

    def open(self, step, where):
        cmd = self.mapped(step["command"])
        stream = {
            "db": step["db"],
            "collection": cmd["aggregate"] if isinstance(cmd["aggregate"], str) else "$cmd.aggregate",
            "session": self.client.start_session(),
            "id": 0,
            "waiting": [],
        }
        self.streams[step["open"]] = stream
        try:
            raw = self.client[step["db"]].command(command(cmd), codec_options=RAW, session=stream["session"])
        except PyMongoError as failure:
            self.outcome(step, f"{where} open {step['open']}", failure=failure)
            return
        if "error" in step:
            self.differences.append(
                f"{where} open {step['open']}: succeeded, recorded error {step['error'].get('codeName')}"
            )
        cursor = read(raw.raw)["cursor"]
        stream["id"] = int(cursor["id"]["$numberLong"])
        stream["waiting"] = cursor["firstBatch"]
        self.learn({"postBatchResumeToken": step.get("postBatchResumeToken")}, cursor)
        self.settle(stream, step.get("firstBatch", []), f"{where} open {step['open']}")

    def settle(self, stream, want, where):
        actual, stream["waiting"] = stream["waiting"][: len(want)], stream["waiting"][len(want) :]
        want, actual = dropped_in_any_order(want), dropped_in_any_order(actual)
        for w, g in zip(want, actual, strict=False):
            self.learn(w, g)
        self.differences += self.alike.differences(want, actual, where)

    def batches(self, steps, where):
        """Several getMores of one stream: the same events in the same order, however they fall into batches."""
        stream, where = self.streams[steps[0]["getMore"]], f"{where} {steps[0]['getMore']}"
        want = [event for step in steps for event in step.get("nextBatch", [])]
        failed = next((step for step in steps if "error" in step), None)
        end = time.monotonic() + self.patience
        failure = None
        while (
            stream["id"]
            and failure is None
            and (len(stream["waiting"]) < len(want) or failed)
            and time.monotonic() < end
        ):
            failure = self.more(stream)
        if stream["id"] and failure is None and not failed:
            failure = self.more(stream, 100)
        self.settle(stream, want, where)
        if failure is not None:
            self.outcome(failed or {}, where, failure=failure)
        elif failed:
            self.differences.append(f"{where}: no error, recorded {failed['error'].get('codeName')}")
        elif "cursorOpen" in steps[-1] and steps[-1]["cursorOpen"] != bool(stream["id"]):
            self.differences.append(f"{where}: cursor open {bool(stream['id'])}, recorded {steps[-1]['cursorOpen']}")
        last = next((s["postBatchResumeToken"] for s in reversed(steps) if "postBatchResumeToken" in s), None)
        if last and "mark" in stream:
            self.tokens.setdefault(last["_data"], stream["mark"])

    def more(self, stream, wait=500):
        try:
            raw = self.client[stream["db"]].command(
                SON([("getMore", Int64(stream["id"])), ("collection", stream["collection"]), ("maxTimeMS", wait)]),
                codec_options=RAW,
                session=stream["session"],
            )
        except PyMongoError as failure:
            stream["id"] = 0
            return failure
        cursor = read(raw.raw)["cursor"]
        stream["id"] = int(cursor["id"]["$numberLong"])
        stream["waiting"] += cursor["nextBatch"]
        if "postBatchResumeToken" in cursor:
            stream["mark"] = cursor["postBatchResumeToken"]["_data"]
        return None

    def kill(self, step, where):
        stream = self.streams[step["kill"]]
        self.client[stream["db"]].command(
            SON([("killCursors", stream["collection"]), ("cursors", [Int64(stream["id"])])]), session=stream["session"]
        )

    def end(self, step, where):
        stream = self.streams[step["end"]]
        if stream["id"]:
            self.kill({"kill": step["end"]}, where)
            stream["id"] = 0
