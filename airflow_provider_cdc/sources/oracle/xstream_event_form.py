"""The event form of an XStream connector for Oracle, made from events of LogMiner.

It is for consumers that were written for such events. It is not an XStream client: the driver's thin mode has none. Differences in
content remain as LogMiner gives them: several writes to a LOB are one event, columns of type ROWID are included, and truncates follow
``skipped.operations``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from airflow_provider_cdc.core.spi.source_block_formats import EventForm

_TEXT, _NUMBER = pa.string(), pa.int64()
_FIELDS: Final = pa.struct(
    [
        pa.field("version", _TEXT, nullable=False),
        pa.field("connector", _TEXT, nullable=False),
        pa.field("name", _TEXT, nullable=False),
        pa.field("db", _TEXT, nullable=False),
        pa.field("schema", _TEXT, nullable=False),
        pa.field("table", _TEXT, nullable=False),
        pa.field("snapshot", _TEXT),
        pa.field("txId", _TEXT),
        pa.field("ts_ms", _NUMBER, nullable=False),
        pa.field("ts_us", _NUMBER),
        pa.field("ts_ns", _NUMBER),
        pa.field("scn", _TEXT),
        pa.field("lcr_position", _TEXT),
        pa.field("user_name", _TEXT),
        pa.field("row_id", _TEXT),
    ]
)


def lcr_position(scn: int, commit_scn: int, seq: int) -> str:
    """Return a text of 48 hexadecimal digits that sorts events in log order by plain comparison.

    It is not Oracle's own LCR position, which LogMiner does not show. Like that one it begins with the SCN of the commit; events of
    the same commit are ordered by ``seq``.

    >>> lcr_position(49066206, 49066210, 17)
    '0000000002ecb0e200000000000000110000000002ecb0de'
    """
    return f"{commit_scn:016x}{seq:016x}{scn:016x}"


def _source(source: Mapping[str, Any], seq: int) -> dict[str, Any]:
    block = {field.name: source.get(field.name) for field in _FIELDS}
    scn = source.get("scn")
    if source["snapshot"] == "false" and scn is not None:
        block["lcr_position"] = lcr_position(int(scn), int(source.get("commit_scn") or scn), seq)
    return block | {"connector": "oracle_xstream"}


XSTREAM: Final = EventForm(
    name="xstream",
    source_schema="io.confluent.connect.oracle.xstream.Source",
    fields=_FIELDS,
    source=_source,
    transactions=False,
)
"""See "XStream" in ``docs/sources/oracle.md``."""
