"""Stores the origins of the columns of target tables, as the applies to a target have found them.

There is one document for each target, beside its report.

It is for lineage. It is written when it changes, which is when a table is new, or its columns or its rule have changed.
"""

from __future__ import annotations

import logging
from typing import Any

import orjson

from airflow_provider_cdc.changelog.reports.report_store import TargetReports

log = logging.getLogger(__name__)


class ColumnOrigins(TargetReports[dict[str, Any]]):
    """The documents of one connector.

        >>> ColumnOrigins(changelog.storage, "shop").read("delta", "/lake/{database}/{table}")["shop.shop.customers"]["columns"]["email"]
        {'type': 'string', 'from': ['mail'], 'how': 'identity'}

    For each topic: ``location`` (as the report has it), ``path`` (where its files are), ``catalog`` (of a table that has a name: ``name``, and what is
    known of the catalog: ``type``, ``uri``, ``warehouse``), ``table`` (of the source), ``source`` (column of the source → its type in the change
    log), ``rule``, ``filter`` (columns that the rule's filter looks at), and ``columns``: column of the table → its ``type``, the columns of the
    source that it comes ``from``, and ``how``: one of :data:`HOW`, with more about it in ``text``.
    """

    FOLDER = "origins"

    def read(self, target: str, location: str) -> dict[str, Any]:
        """Topic → the known origins of its table; a document that cannot be read is treated as missing, and written again by the next apply."""
        path = self.report_path(target, location)
        data = self._storage.read(path)
        try:
            document = orjson.loads(data) if data is not None else {}
            return (
                {topic: origins for topic, origins in document["tables"].items() if isinstance(origins, dict)}
                if document
                else {}
            )
        except (ValueError, TypeError, KeyError, AttributeError) as e:
            log.warning("The document %s cannot be read and is skipped: %s", path, e)
            return {}


HOW = ("identity", "cast", "computed", "constant", "event", "mode", "dropped")
"""``text`` of a cast is the type, of a computed column its SQL, of a constant its text, of an event the fact that the column holds. The mode keeps
its own columns up to date. A dropped column no longer exists at the source."""
