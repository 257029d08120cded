"""A member as a process: ``python -m dev.servers.mongodb ORDER``, the order as JSON."""

import asyncio
import json
import logging
import signal
import sys
from pathlib import Path

from dev.servers.mongodb.server import Server
from dev.servers.mongodb.sharding.router import Router
from dev.servers.mongodb.sharding.routing import HANDLERS
from dev.servers.mongodb.storage.node import Settings


async def main() -> None:
    """Serve until SIGTERM."""
    order = json.loads(sys.argv[1])
    if order.get("folder"):
        order["folder"] = Path(order["folder"])
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s %(message)s")
    shards, replay = order.pop("shards", None), order.pop("replay", None)
    settings = Settings(**order)
    if replay:
        from dev.servers.mongodb.replay import Replay

        server: Server = Replay(settings, Path(replay["file"]), replay["copies"], held=replay.get("held", False))
    else:
        server = Router(settings, shards, HANDLERS) if shards else Server(settings)
    await server.start()
    logging.getLogger("mongodb").info("ready on %s", order["port"])
    done = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, done.set)
    await done.wait()


asyncio.run(main())
