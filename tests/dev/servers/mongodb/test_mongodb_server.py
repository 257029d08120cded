"""The stand-in for MongoDB: recordings of a real one played against it, its members, users and fail points."""

import socket
import time
from collections.abc import Iterator
from typing import Any

import pymongo
import pytest
from bson import Timestamp
from pymongo.errors import NotPrimaryError, OperationFailure, PyMongoError

from dev.servers.mongodb import MongoDb, ReplicaSet
from dev.servers.mongodb.wire import messages
from tests.support.patience import wait_until
from tests.support.servers.tls import authority, sign_certificate
from tests.support.sources.mongodb.mongodb_recordings import play_scenario, scenarios

SCENARIOS = scenarios()
PLAYED = sorted(name for name, scenario in SCENARIOS.items() if scenario.get("replay", True))
SLOW = {
    "errors",
    "large",
    "quiet",
    "transaction_large",
    "random_updates_1",
    "update_operators",
    "update_operators_expanded",
}
NOT_YET: set[str] = set()
"""The recordings of which something still differs. One that is as recorded must be taken out."""
NOT_PLAYED = {
    "images_expired", "no_majority", "oplog_lost", "primary_killed", "privileges", "server", "sharded_resume", "sharded_structure", "standalone", "step_down",
}  # fmt: skip
"""What commands alone cannot play; the tests below do most of it by other means."""


@pytest.fixture(scope="module")
def server() -> Iterator[MongoDb]:
    """A set of one."""
    with MongoDb() as started:
        yield started


@pytest.fixture(scope="module")
def client(server: MongoDb) -> Iterator[Any]:
    """A client of it, which does not write again by itself."""
    with server.connect(retryWrites=False) as connected:
        yield connected


def test_each_recording_is_played_or_said_not_to_be() -> None:
    assert {*PLAYED, *NOT_PLAYED} == set(SCENARIOS)
    assert set(PLAYED) >= NOT_YET


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in PLAYED]
)
def test_it_answers_as_recorded(client: Any, name: str) -> None:
    found = play_scenario(client, SCENARIOS[name])
    if name in NOT_YET:
        assert found, f"{name} is as recorded: take it out of NOT_YET"
    else:
        assert found == []


def test_a_server_says_of_itself_what_the_recording_has(client: Any) -> None:
    """The scenario ``server``, but for what is of its storage engine, its build and its age."""
    own = {
        "buildInfo", "replSetGetStatus", "listDatabases", "collStats", "dbStats", "serverStatus", "explain", "hello", "isMaster", "replSetGetConfig",
    }  # fmt: skip
    steps = [
        step
        for step in SCENARIOS["server"]["steps"]
        if step["run"] != "local" and next(iter(step["command"])) not in own
    ]
    random = [step for step in steps if "$collStats" in str(step["command"]) or "$sample" in str(step["command"])]
    assert play_scenario(client, {"steps": [step for step in steps if step not in random]}) == []


@pytest.mark.parametrize("name", ["hello", "isMaster", "replSetGetConfig"])
def test_what_drivers_ask_first_has_the_recorded_fields(server: MongoDb, name: str) -> None:
    recorded = next(step["reply"] for step in SCENARIOS["server"]["steps"] if next(iter(step["command"])) == name)
    with server.direct() as alone:
        reply = {
            field: value
            for field, value in alone.admin.command(name).items()
            if field not in ("$clusterTime", "operationTime")
        }
    assert list(reply) == list(recorded)
    if name == "replSetGetConfig":
        assert list(reply["config"]) == list(recorded["config"])
        assert list(reply["config"]["settings"]) == list(recorded["config"]["settings"])


def test_images_expire() -> None:
    with MongoDb() as server, server.connect() as client:
        client.shop.create_collection("orders", changeStreamPreAndPostImages={"enabled": True})
        client.shop.orders.insert_one({"_id": 1, "a": 1})
        options = {"full_document_before_change": "whenAvailable", "full_document": "whenAvailable"}
        with client.shop.orders.watch(**options) as stream:
            token = stream.resume_token
            client.shop.orders.update_one({"_id": 1}, {"$set": {"a": 2}})
            event = next(stream)
        assert (event["fullDocumentBeforeChange"], event["fullDocument"]) == ({"_id": 1, "a": 1}, {"_id": 1, "a": 2})
        client.admin.command(
            {"setClusterParameter": {"changeStreamOptions": {"preAndPostImages": {"expireAfterSeconds": 1}}}}
        )
        time.sleep(1.5)
        with client.shop.orders.watch(**options, resume_after=token) as stream:
            event = next(stream)
        assert (event["fullDocumentBeforeChange"], event["fullDocument"]) == (None, None)
        with pytest.raises(OperationFailure) as failed:
            client.shop.orders.watch(full_document_before_change="required", resume_after=token).try_next()
        assert failed.value.code == 47


# what it refuses


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({"noSuchCommand": 1}, 59),
        ({"find": "c", "noSuchOption": 1}, 40415),
        ({"find": "c", "filter": {"a": {"$noSuchOperator": 1}}}, 2),
        ({"aggregate": "c", "pipeline": [{"$noSuchStage": {}}], "cursor": {}}, 40324),
        ({"aggregate": "c", "pipeline": [{"$project": {"a": {"$noSuchExpression": 1}}}], "cursor": {}}, 168),
        ({"update": "c", "updates": [{"q": {}, "u": {"$noSuchModifier": {"a": 1}}}]}, 9),
    ],
)
def test_what_it_does_not_know_is_refused(client: Any, command: dict[str, Any], code: int) -> None:
    assert _code(client, command) == code


def _code(client: Any, command: dict[str, Any]) -> int:
    """The code that a command, or its first write, fails with; 0 when it does not."""
    try:
        reply = client.refused.command(command)
    except OperationFailure as error:
        return int(error.code or 0)
    return next((int(error["code"]) for error in reply.get("writeErrors", [])), 0)


# life


def test_what_was_written_survives_a_kill() -> None:
    with MongoDb() as server, server.connect() as client:
        client.shop.orders.insert_many([{"_id": number, "a": [number]} for number in range(5)])
        client.shop.orders.update_one({"_id": 3}, {"$push": {"a": "more"}})
        client.shop.orders.delete_one({"_id": 4})
        client.shop.orders.create_index("a")
        with client.shop.watch() as stream:
            place = stream.resume_token
        before = list(client.shop.orders.find())
        server.kill()
        server.start()
        client.shop.orders.insert_one({"_id": 9})
        assert list(client.shop.orders.find()) == [*before, {"_id": 9}]
        assert set(client.shop.orders.index_information()) == {"_id_", "a_1"}
        with client.shop.watch(resume_after=place) as stream:
            assert next(stream)["documentKey"] == {"_id": 9}


def test_the_oplog_is_bounded_and_a_lost_place_is_an_error() -> None:
    with MongoDb({"oplog_bytes": 20_000}) as server, server.connect() as client:
        client.shop.orders.insert_one({"_id": 1})
        with client.shop.orders.watch() as stream:
            client.shop.orders.insert_one({"_id": 2})
            token = next(stream)["_id"]
        for number in range(3, 60):
            client.shop.orders.insert_one({"_id": number, "pad": "x" * 1000})
        with pytest.raises(OperationFailure) as failed:
            client.shop.orders.watch(resume_after=token)
        assert failed.value.code == 286
        assert failed.value.has_error_label("NonResumableChangeStreamError")
        assert client.shop.orders.count_documents({}) == 59


def test_a_standalone_server_has_no_change_streams() -> None:
    with MongoDb({"replica_set": None}) as server, server.connect() as client:
        assert "setName" not in client.admin.command("hello")
        with pytest.raises(OperationFailure) as failed:
            client.shop.orders.watch()
        assert failed.value.code == 40573


def test_messages_are_compressed(server: MongoDb) -> None:
    with server.connect(compressors="zlib") as client:
        client.packed.drop_collection("c")
        client.packed.c.insert_one({"_id": 1, "text": "x" * 100_000})
        assert client.packed.c.find_one()["text"] == "x" * 100_000


@pytest.mark.parametrize("compressor", [messages.ZLIB, messages.ZSTD])
def test_a_compressed_message_is_read_as_it_was(compressor: int) -> None:
    message = messages.Message(7, {"find": "c"}, compressor=compressor)
    data = messages.reply(message, {"text": "x" * 1000})
    assert len(data) < 200
    assert messages.parse_message(data[:16], data[16:]).body == {"text": "x" * 1000}


# users


@pytest.fixture(scope="module")
def secured_server() -> Iterator[MongoDb]:
    """A server that asks who one is, with an administrator."""
    with MongoDb({"auth": True}) as started:
        with started.connect() as client:
            client.admin.command({"createUser": "root", "pwd": "secret", "roles": ["root"]})
        yield started


def _connect_as(server: MongoDb, name: str, password: str = "secret", **options: Any) -> Any:
    return server.connect(username=name, password=password, **options)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-1", None])
def test_a_user_authenticates(secured_server: MongoDb, mechanism: str | None) -> None:
    more = {"authMechanism": mechanism} if mechanism else {}
    with _connect_as(secured_server, "root", **more) as client:
        client.shop.orders.insert_one({})
    with _connect_as(secured_server, "root", "wrong", **more) as client, pytest.raises(OperationFailure) as failed:
        client.shop.orders.find_one()
    assert failed.value.code == 18
    with secured_server.connect() as client, pytest.raises(OperationFailure) as failed:
        client.shop.orders.find_one()
    assert failed.value.code == 13


def test_users_may_do_what_the_recording_lets_them(secured_server: MongoDb) -> None:
    """The scenario ``privileges``: each note names the roles of the user of the steps after it."""
    differences = []
    with _connect_as(secured_server, "root") as root:
        for part, steps in _by_user(SCENARIOS["privileges"]["steps"]):
            user: Any = root
            if part is not None:
                name = f"user{len(differences)}_{time.monotonic_ns()}"
                root.admin.command({"createUser": name, "pwd": "secret", "roles": part})
                user = _connect_as(secured_server, name)
            for step in steps:
                if found := _allowed_otherwise(user, step):
                    differences.append(f"{part}: {found}")
    assert differences == []


def _by_user(steps: list[dict[str, Any]]) -> list[tuple[Any, list[dict[str, Any]]]]:
    import json

    out: list[tuple[Any, list[dict[str, Any]]]] = [(None, [])]
    for step in steps:
        if "note" in step:
            if not step["note"].startswith("as a user with roles "):
                break
            out.append((json.loads(step["note"].removeprefix("as a user with roles ")), []))
        else:
            out[-1][1].append(step)
    return out


def _allowed_otherwise(client: Any, step: dict[str, Any]) -> str | None:
    """Check whether a step is refused here and not in the recording, or the other way round."""
    from tests.support.sources.mongodb.mongodb_json import command

    try:
        client[step.get("run") or step["db"]].command(command(step["command"]))
        code = None
    except OperationFailure as error:
        code = error.code
    expected = step.get("error", {}).get("code")
    return None if (code == 13) == (expected == 13) else f"{step['command']}: {code}, recorded {expected}"


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MongoDb, dict[str, Any], dict[str, Any]]]:
    """A server with TLS, options of a client with a certificate, and of one with another."""
    folder = tmp_path_factory.mktemp("certificates")
    ca = authority(folder)
    own = sign_certificate(folder, ca, "server", "127.0.0.1")
    clients = []
    for name in ("reader", "stranger"):
        made = sign_certificate(folder, ca, name)
        both = folder / f"{name}-both.pem"
        both.write_bytes(made.file.read_bytes() + made.key_file.read_bytes())
        clients.append({"tls": True, "tlsCAFile": str(ca.file), "tlsCertificateKeyFile": str(both)})
    tls = {"certificate": str(own.file), "key": str(own.key_file), "ca": str(ca.file)}
    with MongoDb({"auth": True, "tls": tls}) as started:
        with started.connect(**clients[0]) as client:
            client["$external"].command({"createUser": "CN=reader", "roles": [{"role": "read", "db": "shop"}]})
        yield started, clients[0], clients[1]


def test_a_user_is_known_by_a_certificate(tls_server: Any) -> None:
    server, reader, stranger = tls_server
    with server.connect(**reader, authMechanism="MONGODB-X509") as client:
        assert client.shop.orders.find_one() is None
        with pytest.raises(OperationFailure) as failed:
            client.shop.orders.insert_one({})
        assert failed.value.code == 13
    with server.connect(**stranger, authMechanism="MONGODB-X509") as client, pytest.raises(OperationFailure) as failed:
        client.shop.orders.find_one()
    assert failed.value.code == 18


def test_without_tls_there_is_no_answer(tls_server: Any) -> None:
    server, _, _ = tls_server
    with server.connect(serverSelectionTimeoutMS=500) as client, pytest.raises(PyMongoError):
        client.admin.command("ping")


# members


@pytest.fixture
def members() -> Iterator[ReplicaSet]:
    """Three members."""
    with ReplicaSet() as started:
        yield started


@pytest.mark.slow
def test_a_stream_goes_on_over_a_step_down_and_a_killed_primary(members: ReplicaSet) -> None:
    with members.connect() as client:
        client.shop.create_collection("orders")
        with client.shop.orders.watch() as stream:
            client.shop.orders.insert_one({"_id": 1})
            assert next(stream)["documentKey"] == {"_id": 1}
            client.admin.command({"replSetStepDown": 20})
            client.shop.orders.insert_one({"_id": 2})
            assert next(stream)["documentKey"] == {"_id": 2}
            members.primary().kill()
            client.shop.orders.insert_one({"_id": 3})
            assert next(stream)["documentKey"] == {"_id": 3}


@pytest.mark.slow
def test_what_no_majority_has_is_never_in_a_stream_and_is_rolled_back(members: ReplicaSet) -> None:
    with members.connect() as client:
        client.shop.orders.insert_one({"_id": 1})
        start = client.admin.command("ping")["operationTime"]
    old = members.primary()
    others = [member for member in members.members if member is not old]
    for member in others:
        member.kill()
    with old.direct() as alone:
        unsafe = alone.shop.get_collection("orders", write_concern=pymongo.WriteConcern(1))
        with alone.shop.orders.watch() as stream:
            unsafe.insert_one({"_id": "only here"})
            assert stream.try_next() is None
        assert unsafe.find_one({"_id": "only here"})
    old.kill()
    for member in others:
        member.start()
    with members.connect() as client:
        client.shop.orders.insert_one({"_id": "of the others"})
        old.start()
        with client.shop.orders.watch(start_at_operation_time=Timestamp(start.time, start.inc + 1)) as stream:
            assert next(stream)["documentKey"] == {"_id": "of the others"}
    wait_until(lambda: _ids(old) == [1, "of the others"], "the old primary has what the others have")


def _ids(member: MongoDb) -> list[Any]:
    with member.direct(readPreference="secondaryPreferred", serverSelectionTimeoutMS=500) as client:
        try:
            return [document["_id"] for document in client.shop.orders.find()]
        except PyMongoError:
            return []


@pytest.mark.slow
def test_a_secondary_reads_only_for_those_who_ask_for_it(members: ReplicaSet) -> None:
    with members.connect() as client:
        client.shop.orders.insert_one({"_id": 1})
    members.primary()
    secondary = members.secondaries()[0]
    wait_until(lambda: _ids(secondary) == [1], "the secondary has the document")
    with secondary.direct() as client, pytest.raises(NotPrimaryError) as failed:
        client.shop.orders.insert_one({"_id": 2})
    assert failed.value.details["code"] == 10107


@pytest.mark.parametrize(("name", "number"), messages.COMPRESSORS.items())
def test_each_compressor_is_agreed_to_and_carries_commands_and_replies(server: MongoDb, name: str, number: int) -> None:
    """By the protocol itself: not every compressor has a library that the driver could use here."""

    def message(body: dict[str, Any], compressor: int = 0) -> bytes:
        request = messages.Message(0, {"find": ""}, compressor=compressor)
        return messages.reply(request, body)

    with socket.create_connection((server.host, server.port)) as connected, connected.makefile("rb") as answers:

        def send_and_read(data: bytes) -> tuple[int, dict[str, Any]]:
            connected.sendall(data)
            header = answers.read(16)
            size, _, _, code = messages.HEADER.unpack(header)
            return code, messages.parse_message(header, answers.read(size - 16)).body

        hello = {"hello": 1, "compression": ["nonsense", name], "$db": "admin"}
        assert send_and_read(message(hello))[1]["compression"] == [name]
        texts = ["x" * 100_000, "né"]
        insert = {
            "insert": "packed",
            "documents": [{"_id": f"{name} {i}", "t": t} for i, t in enumerate(texts)],
            "$db": "shop",
        }
        code, reply = send_and_read(message(insert, number))
        assert (code, reply["n"]) == (messages.OP_COMPRESSED, 2)
        find = {
            "find": "packed",
            "filter": {"_id": {"$gte": name, "$lt": name + "~"}},
            "sort": {"_id": 1},
            "$db": "shop",
        }
        found = send_and_read(message(find, number))[1]["cursor"]["firstBatch"]
        assert [document["t"] for document in found] == texts


def test_members_join_and_leave_a_set() -> None:
    with ReplicaSet() as members, members.connect() as client:
        client.shop.c.insert_many([{"_id": number} for number in range(50)])
        with client.shop.watch() as stream:
            added = members.add_member()
            with added.direct(readPreference="secondaryPreferred") as alone:

                def is_copied() -> bool:
                    try:
                        return bool(alone.shop.c.count_documents({}) == 50)
                    except NotPrimaryError:  # it has nothing yet
                        return False

                wait_until(is_copied, "the new member has all documents")
            wait_until(lambda: len(client.nodes) == 4, "the driver knows it")
            members.remove_member(members.secondaries()[0])
            client.admin.command({"replSetStepDown": 5, "force": True})

            def is_written() -> bool:
                try:
                    client.shop.c.replace_one({"_id": 50}, {"_id": 50}, upsert=True)
                except PyMongoError:  # there may be another election meanwhile
                    return False
                return True

            wait_until(is_written, "there is a primary again")
            assert next(stream)["documentKey"] == {"_id": 50}
        assert client.admin.command("replSetGetConfig")["config"]["version"] == 3
        with pytest.raises(OperationFailure) as failed:
            client.admin.command(
                {"replSetReconfig": {"_id": "rs0", "version": 3, "members": [{"_id": 0, "host": "x:1"}]}}
            )
        assert failed.value.code == 103
