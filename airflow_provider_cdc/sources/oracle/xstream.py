"""Events in the form of an XStream connector for Oracle, made of what LogMiner gives.

It is a rendering for consumers that were written for such events, not a client of XStream: the driver's thin mode has none. What
such a connector does otherwise in the log itself stays as LogMiner has it: parts of a LOB that are written one by one are one event,
columns of type ROWID are there, and truncates are as ``skipped.operations`` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from airflow_provider_cdc.core.spi.event_forms import EventForm

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
    """A text of 48 hexadecimal digits that puts events in the order of the log, by plain comparison.

    It is not the position that Oracle would give: LogMiner does not tell that one. It begins with the SCN of the commit, as
    Oracle's does; events of the same commit follow each other by ``seq``.

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
