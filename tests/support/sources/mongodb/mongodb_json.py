"""BSON bytes to canonical extended JSON and back, every type, without a Python value between that could lose something."""

import base64
import struct

from bson import SON, Decimal128
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument

RAW = CodecOptions(document_class=RawBSONDocument, uuid_representation=UuidRepresentation.UNSPECIFIED)


# BSON bytes to extended JSON and back, every type, without a Python value between that could lose something.


def read(b, array=False):
    """Canonical extended JSON of one BSON document given as bytes."""
    out, i = ([] if array else {}), 4
    while b[i]:
        kind = b[i]
        end = b.index(b"\0", i + 1)
        name = bytes(b[i + 1 : end]).decode()
        value, i = _read_value(kind, b, end + 1)
        if array:
            out.append(value)
        else:
            out[name] = value
    return out


def _string(b, i):
    n = struct.unpack_from("<i", b, i)[0]
    return bytes(b[i + 4 : i + 3 + n]).decode(), i + 4 + n


def _read_value(kind, b, i):  # noqa: C901 — one branch a type
    at = struct.unpack_from
    if kind == 0x01:
        x = at("<d", b, i)[0]
        text = "NaN" if x != x else "Infinity" if x == float("inf") else "-Infinity" if x == float("-inf") else repr(x)
        return {"$numberDouble": text}, i + 8
    if kind == 0x02:
        return _string(b, i)
    if kind in (0x03, 0x04):
        n = at("<i", b, i)[0]
        return read(b[i : i + n], kind == 0x04), i + n
    if kind == 0x05:
        n, sub = at("<iB", b, i)
        return {
            "$binary": {"base64": base64.b64encode(bytes(b[i + 5 : i + 5 + n])).decode(), "subType": f"{sub:02x}"}
        }, i + 5 + n
    if kind == 0x06:
        return {"$undefined": True}, i
    if kind == 0x07:
        return {"$oid": bytes(b[i : i + 12]).hex()}, i + 12
    if kind == 0x08:
        return bool(b[i]), i + 1
    if kind == 0x09:
        return {"$date": {"$numberLong": str(at("<q", b, i)[0])}}, i + 8
    if kind == 0x0A:
        return None, i
    if kind == 0x0B:
        end = b.index(b"\0", i)
        last = b.index(b"\0", end + 1)
        return {
            "$regularExpression": {"pattern": bytes(b[i:end]).decode(), "options": bytes(b[end + 1 : last]).decode()}
        }, last + 1
    if kind == 0x0C:
        ref, i = _string(b, i)
        return {"$dbPointer": {"$ref": ref, "$id": {"$oid": bytes(b[i : i + 12]).hex()}}}, i + 12
    if kind == 0x0D:
        text, i = _string(b, i)
        return {"$code": text}, i
    if kind == 0x0E:
        text, i = _string(b, i)
        return {"$symbol": text}, i
    if kind == 0x0F:
        n = at("<i", b, i)[0]
        text, j = _string(b, i + 4)
        return {"$code": text, "$scope": read(b[j : i + n])}, i + n
    if kind == 0x10:
        return {"$numberInt": str(at("<i", b, i)[0])}, i + 4
    if kind == 0x11:
        inc, t = at("<II", b, i)
        return {"$timestamp": {"t": t, "i": inc}}, i + 8
    if kind == 0x12:
        return {"$numberLong": str(at("<q", b, i)[0])}, i + 8
    if kind == 0x13:
        return {"$numberDecimal": str(Decimal128.from_bid(bytes(b[i : i + 16])))}, i + 16
    if kind == 0xFF:
        return {"$minKey": 1}, i
    if kind == 0x7F:
        return {"$maxKey": 1}, i
    raise ValueError(f"BSON type 0x{kind:02x}")


def write(document):
    """The BSON bytes of a document in canonical extended JSON, or of an array given as a list."""
    items = enumerate(document) if isinstance(document, list) else document.items()
    body = b""
    for name, value in items:
        kind, payload = _write_value(value)
        body += bytes([kind]) + str(name).encode() + b"\0" + payload
    return struct.pack("<i", len(body) + 5) + body + b"\0"


def _text(x):
    x = x.encode()
    return struct.pack("<i", len(x) + 1) + x + b"\0"


def _write_value(v):  # noqa: C901 — one branch a type
    if v is None:
        return 0x0A, b""
    if isinstance(v, bool):
        return 0x08, bytes([v])
    if isinstance(v, str):
        return 0x02, _text(v)
    if isinstance(v, list):
        return 0x04, write(v)
    keys = set(v)
    if keys == {"$numberDouble"}:
        return 0x01, struct.pack("<d", float(v["$numberDouble"]))
    if keys == {"$binary"}:
        data = base64.b64decode(v["$binary"]["base64"])
        return 0x05, struct.pack("<iB", len(data), int(v["$binary"]["subType"], 16)) + data
    if keys == {"$undefined"}:
        return 0x06, b""
    if keys == {"$oid"}:
        return 0x07, bytes.fromhex(v["$oid"])
    if keys == {"$date"}:
        return 0x09, struct.pack("<q", int(v["$date"]["$numberLong"]))
    if keys == {"$regularExpression"}:
        return 0x0B, v["$regularExpression"]["pattern"].encode() + b"\0" + v["$regularExpression"][
            "options"
        ].encode() + b"\0"
    if keys == {"$dbPointer"}:
        return 0x0C, _text(v["$dbPointer"]["$ref"]) + bytes.fromhex(v["$dbPointer"]["$id"]["$oid"])
    if keys == {"$code"}:
        return 0x0D, _text(v["$code"])
    if keys == {"$symbol"}:
        return 0x0E, _text(v["$symbol"])
    if keys == {"$code", "$scope"}:
        payload = _text(v["$code"]) + write(v["$scope"])
        return 0x0F, struct.pack("<i", len(payload) + 4) + payload
    if keys == {"$numberInt"}:
        return 0x10, struct.pack("<i", int(v["$numberInt"]))
    if keys == {"$timestamp"}:
        return 0x11, struct.pack("<II", v["$timestamp"]["i"], v["$timestamp"]["t"])
    if keys == {"$numberLong"}:
        return 0x12, struct.pack("<q", int(v["$numberLong"]))
    if keys == {"$numberDecimal"}:
        return 0x13, Decimal128(v["$numberDecimal"]).bid
    if keys == {"$minKey"}:
        return 0xFF, b""
    if keys == {"$maxKey"}:
        return 0x7F, b""
    if keys == {"$repeated", "times"}:
        return 0x02, _text(v["$repeated"] * v["times"])
    return 0x03, write(v)


def command(ext):
    """A command for the driver: the top level as a mapping it may add to, everything below as bytes."""
    return SON((k, _python(v)) for k, v in ext.items())


def _python(v):
    if v is None or isinstance(v, bool | str | int):
        return v
    if isinstance(v, list):
        return [_python(x) for x in v]
    kind, payload = _write_value(v)
    if kind == 0x03:
        return RawBSONDocument(payload, RAW)
    if kind == 0x10:
        return struct.unpack("<i", payload)[0]
    if kind == 0x02:
        return v["$repeated"] * v["times"]
    return RawBSONDocument(write({"v": v}), RAW)["v"]
