"""``dev/server mariadb`` (``python -m dev.servers mariadb``): a database to play with, for as long as it is wanted."""

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dev import paths
from dev.bootstrap.databases import POSTGRES_MAJORS
from dev.bootstrap.report import Problem
from dev.servers import (
    S3,
    Db2,
    Kafka,
    MariaDb,
    MongoDb,
    MySql,
    Postgres,
    ReplicaSet,
    Server,
    ServerError,
    ShardedCluster,
    Sshd,
)
from dev.servers.process import GUARD, command_line

Started = Server | ReplicaSet | ShardedCluster


def _parse_options(options: dict[str, Any]) -> dict[str, Any]:
    return {name: json.loads(value) for name, value in options.items()}


def _mongodb(options: dict[str, Any], port: int | None) -> Started:
    """Make a member, a set of ``members``, or a cluster of so many ``shards`` with a set of ``members`` each."""
    given = _parse_options(options)
    members, shards = given.pop("members", 1), given.pop("shards", 0)
    if shards:
        return ShardedCluster(given, count=shards, members=members, port=port)
    return ReplicaSet(given, count=members) if members > 1 else MongoDb(given, port=port)


KINDS: dict[str, Callable[[dict[str, Any], int | None], Started]] = {
    "mariadb": lambda options, port: MariaDb(options, port=port),
    "mariadb118": lambda options, port: MariaDb(options, edition="11.8", port=port),
    "mysql97": lambda options, port: MySql(options, edition="9.7", port=port),
    "mysql80": lambda options, port: MySql(options, edition="8.0", port=port),
    "postgres": lambda options, port: Postgres(options, port=port),
    **{
        f"postgres{major}": lambda options, port, edition=major: Postgres(options, edition=edition, port=port)
        for major in POSTGRES_MAJORS
    },
    "db2": lambda options, port: Db2(_parse_options(options), port=port),
    "mongodb": _mongodb,
    "kafka": lambda options, port: Kafka(options, port=port),
    "s3": lambda options, port: S3(options, port=port),
    "sshd": lambda options, port: Sshd(options, port=port),
}


def main() -> int:
    """Start one server, or show or stop those that were left running."""
    arguments = _arguments()
    if arguments.what == "list":
        for name, entry in _list_kept_servers().items():
            print(f"{name}  port {entry['port']}  log {entry['log']}")
        return 0
    if arguments.what == "stop":
        return _stop_kept()
    try:
        server = KINDS[arguments.what](arguments.options, arguments.port).start()
    except (Problem, ServerError) as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(_how_to_connect(server)), flush=True)
    if arguments.keep:
        for one in _processes(server):
            _record_server(arguments.what, one)
        print("It keeps running. dev/server stop ends it and deletes its data.")
    else:
        print("Ctrl-C ends it and deletes its data.", flush=True)
        _wait_for_signal(server)
        server.close()
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dev/server", description="Start a private server on 127.0.0.1.")
    parser.add_argument(
        "what", choices=[*KINDS, "list", "stop"], help="a server, or what to do with those kept running"
    )
    parser.add_argument("--keep", action="store_true", help="return at once and leave the server running")
    parser.add_argument("--port", type=int, help="the TCP port (default: a free one)")
    parser.add_argument(
        "-o", "--option", action="append", default=[], metavar="NAME=VALUE", help="a server variable, repeatable"
    )
    arguments = parser.parse_args()
    if wrong := [option for option in arguments.option if "=" not in option]:
        parser.error(f"--option wants NAME=VALUE, not {wrong[0]}")
    arguments.options = dict(option.split("=", 1) for option in arguments.option)
    return arguments


def _processes(server: Started) -> list[Server]:
    return [server] if isinstance(server, Server) else [*server.processes]


def _how_to_connect(server: Started) -> list[str]:
    if not isinstance(server, Server):
        what = (
            "a sharded cluster"
            if isinstance(server, ShardedCluster)
            else f"a replica set of {len(server.members)} members"
        )
        return [
            f"A stand-in for MongoDB runs, {what}; no password is needed",
            f"  {server.url()}",
            *(f"  log {one.log}" for one in server.processes),
        ]
    if isinstance(server, S3):
        lines = [f"S3 runs at {server.endpoint}"]
        lines += [f"  export {name}={value}" for name, value in server.environment.items()]
    elif isinstance(server, Sshd):
        lines = [
            f"OpenSSH {server.version} runs on {server.host}:{server.port} and forwards to any address",
            f"  ssh -N -i {server.data / 'user'} -p {server.port} -L LOCAL_PORT:HOST:PORT {server.user}@{server.host}",
            f"  host key {server.host_key}",
        ]
    elif isinstance(server, Kafka):
        lines = [f"Kafka {server.version} runs at {server.address}, and asks for no password"]
    elif isinstance(server, Db2):
        lines = [
            f"A stand-in for Db2 runs on {server.host}:{server.port}, database {server.database}: a password is the user's name in lower case",
            f"  capture user   {server.user} / {server.password}",
            f"  owner          {server.owner} / {server.owner_password}",
            f"  {server.dsn()}",
        ]
    elif isinstance(server, MongoDb):
        lines = [
            f"A stand-in for MongoDB runs on {server.host}:{server.port}, a replica set of one; no password is needed",
            f"  {server.url()}",
        ]
    elif isinstance(server, Postgres):
        lines = [
            f"PostgreSQL {server.version} runs on {server.host}:{server.port}, user {server.user}, no password needed",
            f"  {server.url()}",
        ]
    else:
        assert isinstance(server, MariaDb | MySql)
        title = "MariaDB" if isinstance(server, MariaDb) else "MySQL"
        client = "mariadb" if shutil.which("mariadb") else "mysql"
        lines = [
            f"{title} {server.version} runs on {server.host}:{server.port}, socket {server.socket}",
            f"  capture user   {server.user} / {server.password}",
            f"  administrator  {server.admin_user} / {server.admin_password}",
            f"  {client} -h {server.host} -P {server.port} -u {server.admin_user} -p{server.admin_password}",
            f"  {server.url()}",
        ]
    return [*lines, f"  log {server.log}"]


def _wait_for_signal(server: Started) -> None:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    while server.running and not stop.wait(0.5):
        pass


def _record_server(name: str, server: Server) -> None:
    entry = {"port": server.port, "log": str(server.log), "folder": str(server.folder), "guard": server.detach()}
    paths.RUN.mkdir(parents=True, exist_ok=True)
    (paths.RUN / f"{name}-{entry['port']}.json").write_text(json.dumps(entry))


def _list_kept_servers() -> dict[str, dict[str, Any]]:
    """The servers left running; entries of those that have ended are removed."""
    entries = {}
    for file in sorted(paths.RUN.glob("*.json")):
        entry = json.loads(file.read_text())
        if _is_guard(entry["guard"]):
            entries[file.stem] = entry
        else:
            file.unlink()
    return entries


def _is_guard(pid: int) -> bool:
    return GUARD.name in command_line(pid)


def _stop_kept() -> int:
    for name, entry in _list_kept_servers().items():
        with contextlib.suppress(ProcessLookupError):
            os.kill(entry["guard"], signal.SIGTERM)
            while _is_guard(entry["guard"]):
                time.sleep(0.1)
        shutil.rmtree(entry["folder"], ignore_errors=True)
        Path(paths.RUN / f"{name}.json").unlink(missing_ok=True)
        print(f"{name} stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
