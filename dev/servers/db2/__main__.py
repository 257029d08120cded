"""``python -m dev.servers.db2 JSON``: the server process."""

import faulthandler
import json
import logging
import signal
import sys

from dev.servers.db2.server import serve

faulthandler.enable()  # the driver may crash
faulthandler.register(signal.SIGUSR1)
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
serve(json.loads(sys.argv[1]))
