"""The driver's fetch of a change stream, and nothing else: ``python -m dev.benchmarks.run_mongodb_fetch URL EVENTS``. The last line of stdout is a JSON object."""

from __future__ import annotations

import json
import sys
import time


def main() -> int:
    url, wanted = sys.argv[1], int(sys.argv[2])
    import pymongo
    from bson.codec_options import CodecOptions
    from bson.raw_bson import RawBSONDocument

    events = seconds = 0
    with pymongo.MongoClient(url) as client:
        admin = client.get_database("admin", codec_options=CodecOptions(document_class=RawBSONDocument))
        opened = admin.command(
            {"aggregate": 1, "pipeline": [{"$changeStream": {"allChangesForCluster": True}}], "cursor": {}}
        )
        more = {"getMore": opened["cursor"]["id"], "collection": "$cmd.aggregate"}
        started, cpu = time.perf_counter(), time.process_time()
        while events < wanted:
            events += len(admin.command(more)["cursor"]["nextBatch"])
        seconds, used = time.perf_counter() - started, time.process_time() - cpu
    print(json.dumps({"events": events, "seconds": round(seconds, 3), "cpu_s": round(used, 3)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
