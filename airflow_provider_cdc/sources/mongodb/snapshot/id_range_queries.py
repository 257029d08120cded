"""Ranges of documents in the order of ``_id``, which mixes types as BSON orders them.

Conditions such as ``$gt`` see only values of the type that they compare with. The bounds of an index do not: ``min`` and ``max`` of a query, with the index
of ``_id``. ``min`` is with its key, and ``max`` without, so that what begins *behind* a key drops the key's own document, and what ends *with* a key reads
that document by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import bson
from bson import MaxKey, json_util
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.json_util import JSONMode, JSONOptions
from bson.raw_bson import RawBSONDocument

from airflow_provider_cdc.core.errors import QueryRejected
from airflow_provider_cdc.sources.mongodb.connect import RAW
from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonDocuments, BsonValues
from airflow_provider_cdc.sources.mongodb.documents.bson_tree import BsonContainer, BsonElement
from airflow_provider_cdc.sources.mongodb.documents.extended_json import JsonForm, format_keys, format_values
from airflow_provider_cdc.sources.mongodb.kernels import bson_lengths as k

BY_ID: Final = {"_id": 1}
LARGEST: Final = {"_id": {"$eq": MaxKey()}}
"""The documents that ``min`` without ``max`` does not reach: that ends before the largest key there is."""
_CANONICAL: Final = JSONOptions(
    json_mode=JSONMode.CANONICAL,
    datetime_conversion=DatetimeConversion.DATETIME_MS,
    uuid_representation=UuidRepresentation.UNSPECIFIED,
)
_CODEC: Final[CodecOptions[dict[str, Any]]] = CodecOptions(uuid_representation=UuidRepresentation.UNSPECIFIED)


def build_range_options(
    low: Any = None, high: Any = None, *, has_low: bool = False, has_high: bool = False
) -> dict[str, Any]:
    """Options of a query in the order of ``_id``, from one key on and up to another one.

    :param low: the first key, if ``has_low``; ``high`` is behind the last one, if ``has_high``
    """
    options: dict[str, Any] = {"hint": BY_ID, "sort": BY_ID}
    if has_low:
        options["min"] = {"_id": low}
    if has_high:
        options["max"] = {"_id": high}
    return options


def filter_of(text: str | None, origin: str) -> dict[str, Any]:
    """Parse a filter from extended JSON.

    :param origin: the property or signal that it is of, for errors
    :raises QueryRejected: it is no document
    """
    if not text:
        return {}
    try:
        document = json_util.loads(text, json_options=_CANONICAL)
    except (ValueError, TypeError, bson.errors.BSONError) as e:
        raise QueryRejected(
            f"A filter is not extended JSON: {e}", where=f"{origin}: {text[:200]}", safe="Nothing was read; capture continues.",
            remedy='write it as a document, such as {"paid": true}',
        ) from None  # fmt: skip
    if not isinstance(document, Mapping):
        raise QueryRejected(
            "A filter is not a document.", where=f"{origin}: {text[:200]}", safe="Nothing was read; capture continues.",
            remedy='write it as a document, such as {"paid": true}',
        )  # fmt: skip
    return dict(document)


def key_text(ids: BsonValues, i: int) -> str:
    """Format a key as chunks have it: canonical extended JSON."""
    import numpy as np

    return str(format_values(ids.select_rows(np.array([i])), JsonForm.CANONICAL, null_as_text=True)[0].as_py())


def key_value(text: str) -> Any:
    """Parse the key of :func:`key_text`, or of the text that events have.

    :raises QueryRejected: it is none
    """
    try:
        return json_util.loads(f'{{"_id": {text}}}', json_options=_CANONICAL)["_id"]
    except (ValueError, TypeError, bson.errors.BSONError) as e:
        raise QueryRejected(
            f"{text[:200]} is not an _id in extended JSON: {e}",
            safe="Nothing was read; capture continues.",
            remedy='write keys as events have them: 1234, "text" with its quotes, {"$oid": "…"}',
        ) from None


def event_key(text: str) -> str:
    """Format the key of a text as events have it: ``{"$oid":"…"}`` with a space, ``{"$numberLong": "7"}`` as ``7``.

    :raises QueryRejected: it is none
    """
    document = BsonDocuments.of_list([bson.encode({"_id": key_value(text)}, codec_options=_CODEC)])
    return str(format_keys(document.read_field(b"_id"))[0].as_py())


def id_alone(document: bytes) -> RawBSONDocument:
    """Return the ``_id`` of a document with nothing else, as the bytes that it is.

    No type, and no date of whatever year, is lost.
    """
    ids = BsonDocuments.of_list([document]).read_field(b"_id")
    return RawBSONDocument(
        BsonContainer(k.DOCUMENT, [BsonElement(b"_id", int(ids.kinds[0]), ids.read_bytes(0))]).encode_bson(), RAW
    )
