"""Replies of ``aggregate``, ``find`` and ``getMore`` as the server sent them, without a Python object for a document."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonDocuments, BsonValues
from airflow_provider_cdc.sources.mongodb.documents.document_errors import DamagedDocument
from airflow_provider_cdc.sources.mongodb.kernels import bson_lengths as k
from airflow_provider_cdc.sources.mongodb.kernels.error_codes import NEEDED


@dataclass(frozen=True)
class ServerReply:
    """A batch of a cursor.

    :ivar cursor_id: 0 when the server has closed it
    :ivar post_batch_resume_token: the BSON of the token behind the batch, if it is one of a change stream
    :ivar at_cluster_time: of a snapshot read, seconds in the upper 32 bits, the place within the second in the lower
    """

    documents: BsonDocuments
    cursor_id: int
    namespace: str
    post_batch_resume_token: bytes | None
    at_cluster_time: int | None


def read_reply(raw: bytes) -> ServerReply:
    """Take a reply with a cursor apart.

    :raises DamagedDocument: it is not BSON, or has no cursor
    """
    (cursor,) = BsonDocuments.of_list([raw]).document_values.read_fields(b"cursor")
    first, following, cursor_id, ns, token, cluster_time = cursor.read_fields(
        b"firstBatch", b"nextBatch", b"id", b"ns", b"postBatchResumeToken", b"atClusterTime"
    )
    batch = first if first.kinds[0] == k.ARRAY else following
    if batch.kinds[0] != k.ARRAY or cursor_id.kinds[0] != k.INT64:
        raise DamagedDocument(0, 0, NEEDED)
    return ServerReply(
        documents=_documents(batch),
        cursor_id=int(cursor_id.to_int64s()[0][0]),
        namespace=ns.to_strings()[0].as_py() or "",
        post_batch_resume_token=token.read_bytes(0) if token.kinds[0] == k.DOCUMENT else None,
        at_cluster_time=int(cluster_time.to_int64s()[0].view(np.uint64)[0])
        if cluster_time.kinds[0] == k.TIMESTAMP
        else None,
    )


def _documents(batch: BsonValues) -> BsonDocuments:
    start, end = int(batch.starts[0]), int(batch.ends[0])
    starts = np.empty((end - start) // 7 + 1, np.int64)
    count, problem = k.split_array(batch.buf, start, end, starts)
    if problem < 0:
        raise DamagedDocument(count, 0, problem)
    starts = starts[:count].copy()
    return BsonDocuments(batch.buf, starts, starts + k.read_lengths(batch.buf, starts))
