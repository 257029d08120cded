"""Filter of GTIDs by source (Debezium MySQL connector, ``gtid.source.includes`` and ``gtid.source.excludes``).

With MySQL a source is the UUID of the server that first committed the transaction, with MariaDB it is the replication domain.

    >>> of_a = GtidSourceFilter(includes=("3e11fa47-.*",))
    >>> of_a.includes_transaction("3e11fa47-71ca-11e1-9e33-c80aa9429562:7"), of_a.includes_transaction("7f22ab58-71ca-11e1-9e33-c80aa9429563:7")
    (True, False)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Self

from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.gtid_sets import Gtids, MySqlGtids

_ID: Final = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):.*|(\d+)-\d+-\d+")


class GtidSourceFilter:
    """The filter of GTID sources that are included. At most one of the two lists is set.

    :param includes: anchored patterns of the sources to include; empty = all
    :param excludes: anchored patterns of the sources to exclude
    """

    def __init__(self, includes: Sequence[str] = (), excludes: Sequence[str] = ()) -> None:
        self._includes = [re.compile(p, re.IGNORECASE) for p in includes]
        self._excludes = [re.compile(p, re.IGNORECASE) for p in excludes]
        self._is_included: dict[str, bool] = {}

    @classmethod
    def from_config(cls, config: MySqlConfig) -> Self:
        return cls(config.gtid_source_includes, config.gtid_source_excludes)

    @property
    def includes_all(self) -> bool:
        """Check whether every source is included."""
        return not (self._includes or self._excludes)

    def includes_source(self, source: str) -> bool:
        """Check whether a source is included.

        :param source: UUID, with or without a tag; or number of a domain
        """
        if source not in self._is_included:
            name = source.partition(":")[0]
            included = not self._includes or any(p.fullmatch(name) for p in self._includes)
            self._is_included[source] = included and not any(p.fullmatch(name) for p in self._excludes)
        return self._is_included[source]

    def includes_transaction(self, id_: str) -> bool:
        """Check whether the source of a transaction is included; a transaction without a GTID always is.

        :param id_: id of the transaction, as in ``transaction.id``
        """
        match = _ID.fullmatch(id_)
        return match is None or self.includes_source(match[1] or match[2])

    def select_included(self, gtids: Gtids) -> Gtids:
        """Return the GTIDs of included sources."""
        return self._select(gtids, included=True)

    def select_excluded(self, gtids: Gtids) -> Gtids:
        """Return the GTIDs of excluded sources."""
        return self._select(gtids, included=False)

    def _select(self, gtids: Gtids, *, included: bool) -> Gtids:
        if isinstance(gtids, MySqlGtids):
            return MySqlGtids({s: list(i) for s, i in gtids.sources.items() if self.includes_source(s) is included})
        return type(gtids)({d: last for d, last in gtids.domains.items() if self.includes_source(str(d)) is included})
