"""The values that properties of the MongoDB source take.

This module is imported at DAG parse: it must stay light.
"""

from __future__ import annotations

import enum
import json
import re
from typing import Annotated, Any, Final

from pydantic import BeforeValidator

TEMPORARY: Final = re.compile(r"tmp(?:\.agg_out\.|\w{5}\.(?:renameCollection|convertToCapped)(?:\.|$)).*", re.DOTALL)
"""Names of collections that the server makes for ``$out``, ``convertToCapped`` and a rename into another database, and renames in the end: then those are read."""


ENCRYPTION: Final = re.compile(r"enxcol_\..+\.(?:esc|ecoc|ecc)(?:\..+)?", re.DOTALL)
"""Names of collections that keep the state of Queryable Encryption: the server's, and of no use without it."""


class CaptureMode(enum.StrEnum):
    """The content of events besides a document's key (Debezium MongoDB connector, ``capture.mode``)."""

    CHANGE_STREAMS = "change_streams"
    UPDATE_FULL = "change_streams_update_full"
    UPDATE_FULL_WITH_PRE_IMAGE = "change_streams_update_full_with_pre_image"
    WITH_PRE_IMAGE = "change_streams_with_pre_image"

    @property
    def has_full_document(self) -> bool:
        """Check whether updates have the whole document."""
        return self in (CaptureMode.UPDATE_FULL, CaptureMode.UPDATE_FULL_WITH_PRE_IMAGE)

    @property
    def pre_image(self) -> bool:
        """Check whether updates and deletes have the document before."""
        return self in (CaptureMode.WITH_PRE_IMAGE, CaptureMode.UPDATE_FULL_WITH_PRE_IMAGE)


class FullUpdateType(enum.StrEnum):
    """The origin of the whole document of an update."""

    LOOKUP = "lookup"
    POST_IMAGE = "post_image"


class CaptureScope(enum.StrEnum):
    """The scope on which one change stream is opened."""

    DEPLOYMENT = "deployment"
    DATABASE = "database"
    COLLECTION = "collection"


class OversizeHandling(enum.StrEnum):
    """The treatment of events of more than 16 MB."""

    FAIL = "fail"
    SKIP = "skip"
    SPLIT = "split"


class PipelineOrder(enum.StrEnum):
    """The order of the user's stages and those of the connector: behind them, or before them."""

    INTERNAL_FIRST = "internal_first"
    USER_FIRST = "user_first"
    USER_ONLY = "user_only"


def _stages(value: Any) -> Any:
    """Stages are written as a JSON array."""
    if not isinstance(value, str):
        return value
    if not value.strip():
        return ()
    try:
        stages = json.loads(value)
    except (ValueError, RecursionError) as e:
        raise ValueError(f"it is not JSON: {e}") from None
    if not isinstance(stages, list) or not all(isinstance(stage, dict) and len(stage) == 1 for stage in stages):
        raise ValueError('write a JSON array of stages, such as [{"$match": {"fullDocument.paid": true}}]')
    return tuple(stages)


Stages = Annotated[tuple[dict[str, Any], ...], BeforeValidator(_stages)]
"""Stages of an aggregation, as extended JSON."""
