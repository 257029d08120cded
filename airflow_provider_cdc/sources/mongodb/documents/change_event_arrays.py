"""Change events as arrays (MongoDB manual, "Change Events"; order of fields and presence of any but the first two are not relied upon)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonDocuments, BsonValues, find_fields
from airflow_provider_cdc.sources.mongodb.documents.document_errors import DamagedDocument
from airflow_provider_cdc.sources.mongodb.kernels import bson_lengths as k
from airflow_provider_cdc.sources.mongodb.kernels import document_fields as kernels
from airflow_provider_cdc.sources.mongodb.kernels.error_codes import NEEDED

OTHER: Final = 0
INSERT: Final = 1
UPDATE: Final = 2
REPLACE: Final = 3
DELETE: Final = 4
_OPERATIONS: Final = (b"insert", b"update", b"replace", b"delete")

MISSING: Final = -(2**63)
"""Instead of a number that an event does not have."""

_WHOLES = (k.INT32, k.INT64)
_FIELDS: Final[dict[bytes, tuple[int, ...]]] = {
    b"_id": (k.DOCUMENT,),
    b"operationType": (k.STRING,),
    b"clusterTime": (k.TIMESTAMP,),
    b"wallTime": (k.DATE,),
    b"ns": (k.DOCUMENT,),
    b"documentKey": (k.DOCUMENT,),
    b"fullDocument": (k.DOCUMENT, k.NULL),
    b"fullDocumentBeforeChange": (k.DOCUMENT, k.NULL),
    b"updateDescription": (k.DOCUMENT,),
    b"lsid": (k.DOCUMENT,),
    b"txnNumber": _WHOLES,
    b"splitEvent": (k.DOCUMENT,),
    b"to": (k.DOCUMENT,),
    b"collectionUUID": (k.BINARY,),
    b"nsType": (k.STRING,),
    b"operationDescription": (k.DOCUMENT,),
    b"stateBeforeChange": (k.DOCUMENT,),
    b"reshardingUUID": (k.BINARY,),
    b"commitTimestamp": (k.TIMESTAMP,),
    b"numberOfCollections": _WHOLES,
}
"""The fields of events, with the types that each may have."""
_UPDATE_FIELDS: Final[dict[bytes, tuple[int, ...]]] = {
    b"updatedFields": (k.DOCUMENT,),
    b"removedFields": (k.ARRAY,),
    b"truncatedArrays": (k.ARRAY,),
    b"disambiguatedPaths": (k.DOCUMENT,),
}


@dataclass(frozen=True)
class ChangeEvents:
    """The content of change events, an array for each of their fields; all have as many rows as there are events.

    :ivar operation: ``INSERT``, ``UPDATE``, ``REPLACE``, ``DELETE``, or ``OTHER``, which fragments that do not say it have, too
    :ivar unknown: how many fields each event has that are not known here
    """

    documents: BsonDocuments
    operation: npt.NDArray[np.uint8]
    operation_type: BsonValues
    unknown: npt.NDArray[np.uint8]
    _fields: dict[bytes, BsonValues]

    def __len__(self) -> int:
        return len(self.operation)

    def read_field(self, name: bytes) -> BsonValues:
        """Return a field of the events by its name, one of those that are known."""
        return self._fields[name]

    def operation_text(self, row: int) -> str:
        """Return the operation of one event in the server's words; empty for a fragment that does not say it."""
        return self.operation_type.select_rows(np.array([row])).to_strings()[0].as_py() or ""

    @cached_property
    def cluster_time(self) -> npt.NDArray[np.uint64]:
        """Seconds in the upper 32 bits, the place within the second in the lower; 0 = none."""
        return self.read_field(b"clusterTime").to_int64s()[0].view(np.uint64)

    @cached_property
    def wall_time(self) -> npt.NDArray[np.int64]:
        """Milliseconds since 1970, or ``MISSING``."""
        return _wholes(self.read_field(b"wallTime"), MISSING)

    @cached_property
    def txn_number(self) -> npt.NDArray[np.int64]:
        """The number of the transaction or of the retryable write, or ``MISSING``."""
        return _wholes(self.read_field(b"txnNumber"), MISSING)

    @cached_property
    def transaction_numbers(self) -> npt.NDArray[np.int64]:
        """A number for the transaction of each event: the same for one number of one session. -1 outside of transactions.

        On a sharded cluster the shards of a transaction commit it at times of their own.
        """
        assigned = np.full(len(self), -1, np.int64)
        within = np.flatnonzero(self.txn_number != MISSING)
        if len(within):
            sessions = self.read_field(b"lsid").select_rows(within).to_binary().dictionary_encode().indices
            numbers, of_number = np.unique(self.txn_number[within], return_inverse=True)
            session = sessions.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64) + 1
            assigned[within] = session * len(numbers) + of_number
        return assigned

    @cached_property
    def fragment_numbers(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Number of each event's fragment, and of how many; 0 of 0 = it is whole."""
        parts = _parts(self.read_field(b"splitEvent"), {b"fragment": _WHOLES, b"of": _WHOLES})
        return _wholes(parts[b"fragment"], 0), _wholes(parts[b"of"], 0)

    @cached_property
    def token_data(self) -> BsonValues:
        """The text of the resume token."""
        return _parts(self.read_field(b"_id"), {b"_data": (k.STRING,)})[b"_data"]

    @cached_property
    def token_array(self) -> pa.LargeStringArray:
        """The same as array."""
        return self.token_data.to_strings()

    @cached_property
    def document_id(self) -> BsonValues:
        """``_id`` of the document that was changed."""
        return self._document_key[0][0]

    @cached_property
    def has_shard_key(self) -> npt.NDArray[np.bool_]:
        """Check whether events name their document by more than its ``_id``.

        These are the fields by which its collection is spread over shards.
        """
        return self._document_key[1] > 0

    @property
    def document_key(self) -> BsonValues:
        """Key of the document that was changed: its shard key, if it has one, and its ``_id``."""
        return self.read_field(b"documentKey")

    @cached_property
    def _document_key(self) -> tuple[list[BsonValues], npt.NDArray[np.uint8]]:
        return find_fields(self.document_key, [b"_id"], np.ones((1, 256), np.bool_))

    @cached_property
    def update_parts(self) -> dict[bytes, BsonValues]:
        """The parts of ``updateDescription``: ``updatedFields``, ``removedFields``, ``truncatedArrays`` and ``disambiguatedPaths``."""
        return _parts(self.read_field(b"updateDescription"), _UPDATE_FIELDS)

    @cached_property
    def event_namespaces(self) -> tuple[npt.NDArray[np.int64], list[tuple[str | None, str | None]]]:
        """Number of each event's namespace, and the namespaces: database and collection, ``None`` where an event is of none."""
        distinct = self.read_field(b"ns").to_binary().dictionary_encode()
        indices = pc.fill_null(distinct.indices, len(distinct.dictionary))
        names = [_namespace(bytes(ns.as_py())) for ns in distinct.dictionary]
        return indices.to_numpy(zero_copy_only=False).astype(np.int64), [*names, (None, None)]


def read_events(documents: BsonDocuments) -> ChangeEvents:
    """Find the fields in change events.

    :raises DamagedDocument: an event is not BSON, has a field twice, or of a type that this field never has, or has no operation or token
    """
    arrays, unknown = find_fields(documents.document_values, list(_FIELDS), _allowed(_FIELDS))
    fields = dict(zip(_FIELDS, arrays, strict=True))
    kind = fields[b"operationType"]
    # fragments of a large event have some of its fields each
    without_operation = (kind.kinds == k.ABSENT) & (fields[b"splitEvent"].kinds == k.ABSENT)
    for absent in (without_operation, fields[b"_id"].kinds == k.ABSENT):
        if absent.any():
            raise DamagedDocument(int(absent.argmax()), 0, NEEDED)
    operation = np.zeros(len(documents), np.uint8)
    begins = np.cumsum([0, *map(len, _OPERATIONS)], dtype=np.int64)
    kernels.find_texts(
        kind.buf, kind.starts + 4, kind.ends - 1, np.frombuffer(b"".join(_OPERATIONS), np.uint8), begins, operation
    )
    return ChangeEvents(documents, operation, kind, unknown, fields)


def _allowed(fields: dict[bytes, tuple[int, ...]]) -> npt.NDArray[np.bool_]:
    allowed = np.zeros((len(fields), 256), np.bool_)
    for f, kinds in enumerate(fields.values()):
        allowed[f, list(kinds)] = True
    return allowed


def _parts(values: BsonValues, fields: dict[bytes, tuple[int, ...]]) -> dict[bytes, BsonValues]:
    return dict(zip(fields, find_fields(values, list(fields), _allowed(fields))[0], strict=True))


def _wholes(values: BsonValues, missing: int) -> npt.NDArray[np.int64]:
    out, valid = values.to_int64s()
    return np.where(valid, out, missing)


def _namespace(ns: bytes) -> tuple[str | None, str | None]:
    parts = _parts(BsonDocuments.of_list([ns]).document_values, {b"db": (k.STRING,), b"coll": (k.STRING,)})
    database, collection = (values.to_strings()[0].as_py() for values in parts.values())
    return database, collection
