"""The fields of a source's ``source`` block, as manifests have them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def field_types(fields: Iterable[pa.Field]) -> dict[str, str]:
    """Fields of the ``source`` block as manifests have them: name → Arrow type, with ``!`` where required.

    >>> field_types([pa.field("pos", pa.int64(), nullable=False), pa.field("gtid", pa.string())])
    {'pos': 'int64!', 'gtid': 'string'}
    """
    return {field.name: f"{field.type}{'' if field.nullable else '!'}" for field in fields}
