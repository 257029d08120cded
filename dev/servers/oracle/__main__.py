"""``python -m dev.servers.oracle JSON``: the server process."""

import json
import logging
import sys

from dev.servers.oracle.server import serve

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
serve(json.loads(sys.argv[1]))
