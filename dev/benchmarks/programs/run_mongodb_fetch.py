"""The driver's fetch of a change stream, as bytes that no one looks into: ``python -m dev.benchmarks.programs.run_mongodb_fetch URL``.

The last line of stdout is a JSON object.
"""

from __future__ import annotations

import json
import sys
import time

BATCH_DOCUMENTS = 100_000
SMALL = 4096
"""Bytes of a reply that has no event."""


def main() -> int:
    url = sys.argv[1]
    import pymongo
    from bson.codec_options import CodecOptions
    from bson.raw_bson import RawBSONDocument

    with pymongo.MongoClient(url) as client:
        raw = CodecOptions(document_class=RawBSONDocument)
        opened = client.admin.command(
            {"aggregate": 1, "pipeline": [{"$changeStream": {"allChangesForCluster": True}}], "cursor": {}}
        )
        more = {"getMore": opened["cursor"]["id"], "collection": "$cmd.aggregate", "batchSize": BATCH_DOCUMENTS}
        started, cpu = time.perf_counter(), time.process_time()
        size = batch = 0
        while not size or batch > SMALL:  # the first batch without events is behind the last of them
            batch = len(client.admin.command(more, codec_options=raw).raw)
            size += batch
        seconds, used = time.perf_counter() - started, time.process_time() - cpu
    print(json.dumps({"bytes": size, "seconds": round(seconds, 3), "cpu_s": round(used, 3)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
