"""Applies updates to the texts of documents, for targets; implements :class:`~airflow_provider_cdc.core.spi.partial_update_applier.PartialUpdateApplier`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.sources.mongodb.documents import extended_json_parser
from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonDocuments
from airflow_provider_cdc.sources.mongodb.documents.bson_tree import BsonContainer, BsonElement, text_value
from airflow_provider_cdc.sources.mongodb.documents.document_errors import DocumentError
from airflow_provider_cdc.sources.mongodb.documents.document_updates import apply_update
from airflow_provider_cdc.sources.mongodb.documents.extended_json import format_values
from airflow_provider_cdc.sources.mongodb.kernels import bson_lengths as k

DESCRIPTION: Final = "updateDescription"
PATHS: Final = "disambiguatedPaths"
_EMPTY: Final = b"\5\0\0\0\0"


class _Updates:
    def apply_updates(
        self, bases: Sequence[str | None], follows: npt.NDArray[np.int64], said: Mapping[str, pa.Array]
    ) -> tuple[pa.Array, dict[int, str]]:
        """See :meth:`~airflow_provider_cdc.core.spi.partial_update_applier.PartialUpdateApplier.apply_updates`."""
        rows = len(bases)
        descriptions: list[Any] = said[DESCRIPTION].to_pylist() if DESCRIPTION in said else [None] * rows
        paths: list[str | None] = said[PATHS].to_pylist() if PATHS in said else [None] * rows
        after, problems = list[bytes | None](), dict[int, str]()
        for row, base in enumerate(bases):
            first = int(follows[row])
            document = None
            if first in problems:
                problems[row] = problems[first]
            else:
                try:
                    before = after[first] if first >= 0 else None
                    document = _applied(
                        before or extended_json_parser.parse_document(base or ""), descriptions[row], paths[row]
                    )
                except (DocumentError, ValueError) as e:
                    problems[row] = str(e)
            after.append(document)
        documents = format_values(BsonDocuments.of_list([bson or _EMPTY for bson in after]).document_values).cast(
            pa.string()
        )
        if not problems:
            return documents, problems
        is_known = np.ones(rows, np.bool_)
        is_known[list(problems)] = False
        return pa.array(np.where(is_known, documents.to_numpy(zero_copy_only=False), None), pa.string()), problems


PARTIAL_UPDATES: Final = _Updates()


def _applied(before: bytes, description: Any, paths: str | None) -> bytes:
    if description is None:
        raise ValueError("the event does not contain the change description")
    return apply_update(before, _description(description, paths))


def _description(description: Any, paths: str | None) -> bytes:
    """Build the server's description of an update, from the columns of an event."""
    updated, removed, cut = (description.get(name) for name in ("updatedFields", "removedFields", "truncatedArrays"))
    parts = [
        BsonElement(b"updatedFields", k.DOCUMENT, extended_json_parser.parse_document(updated) if updated else _EMPTY),
        BsonElement(
            b"removedFields", k.ARRAY, _array([(k.STRING, text_value(name.encode())) for name in removed or ()])
        ),
        BsonElement(b"truncatedArrays", k.ARRAY, _array([(k.DOCUMENT, _cut(array)) for array in cut or ()])),
    ]
    if paths is not None:
        parts.append(BsonElement(b"disambiguatedPaths", k.DOCUMENT, extended_json_parser.parse_document(paths)))
    return BsonContainer(k.DOCUMENT, parts).encode_bson()


def _cut(array: Mapping[str, Any]) -> bytes:
    field = BsonElement(b"field", k.STRING, text_value(array["field"].encode()))
    size = BsonElement(b"newSize", k.INT32, int(array["size"]).to_bytes(4, "little", signed=True))
    return BsonContainer(k.DOCUMENT, [field, size]).encode_bson()


def _array(values: Sequence[tuple[int, bytes]]) -> bytes:
    return BsonContainer(k.ARRAY, [BsonElement(b"", kind, raw) for kind, raw in values]).encode_bson()
