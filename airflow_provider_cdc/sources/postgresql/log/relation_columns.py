"""Columns of relation messages, and the numbers that the catalog has given them.

The log names columns, and the catalog may be ahead of it. A column keeps its number for good; so numbers tell a renamed column from a new one.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from psycopg import Connection

from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.sources.postgresql.protocol.relation_messages import Relation

_ATTRIBUTES: Final = """
SELECT a.attrelid::int8, a.attnum::int4, a.attname, a.attisdropped, a.atthasmissing,
       CASE WHEN a.atthasmissing THEN (a.attmissingval::text::text[])[1] END,
       a.atthasdef, c.relkind = 'r' AND pg_relation_filenode(c.oid) = c.oid
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
WHERE a.attrelid = ANY(%s::oid[]) AND a.attnum > 0 ORDER BY 1, 2"""


@dataclass(frozen=True, slots=True)
class Attribute:
    """A column as the catalog has it now.

    :param dropped: only its number is left
    :param missing: value that rows have which are older than the column, as text
    :param has_missing: there is such a value
    :param unwritten: the table was never written again as a whole, so that ``has_missing`` shows every such value
    """

    number: int
    name: str
    dropped: bool
    has_missing: bool
    missing: str | None
    has_default: bool
    unwritten: bool


def read_attributes(connection: Connection[tuple[Any, ...]], oids: Collection[int]) -> dict[int, list[Attribute]]:
    """Read the columns of tables, dropped ones too, by the OID of the table; a table that does not exist is missing."""
    found: dict[int, list[Attribute]] = defaultdict(list)
    for oid, *fields in connection.execute(_ATTRIBUTES, [list(oids)]):
        number, name, dropped, has_missing, missing, has_default, unwritten = fields
        found[oid].append(Attribute(number, name, dropped, has_missing, missing, has_default, bool(unwritten)))
    return dict(found)


@dataclass(frozen=True, slots=True)
class NumberedColumns:
    """The numbers of a relation's columns.

    :param numbers: one for each column; ``None`` = it cannot be known
    :param agreed: the catalog and the known schema do not contradict each other
    """

    numbers: tuple[int | None, ...]
    agreed: bool

    @property
    def certain(self) -> bool:
        """Check whether all are known, and nothing contradicts them."""
        return self.agreed and None not in self.numbers


def number_columns(relation: Relation, known: TableSchema | None, attributes: Sequence[Attribute]) -> NumberedColumns:
    """Find the numbers of a relation's columns: by name in the known schema and in the catalog, and by their order, which is that of the numbers.

    :param known: schema that the table had before, if it is the same table
    :param attributes: of the catalog; empty if the table does not exist any more
    """
    live = {a.name: a.number for a in attributes if not a.dropped}
    before = {} if known is None else {c.name: c.declared.number for c in known.columns}
    names = [column.name for column in relation.columns]
    by_catalog = [live.get(name, before.get(name)) for name in names]
    by_schema = [before.get(name) or live.get(name) for name in names]
    agree = all(live.get(name) in (None, before.get(name)) for name in names if before.get(name))
    numbers = by_catalog if _ascend(by_catalog) else by_schema
    if not _ascend(numbers):
        return NumberedColumns((None,) * len(names), agreed=False)
    agree = agree or (numbers is by_catalog and not _ascend(by_schema))  # columns have swapped their names
    filled = _fill_gaps(numbers, [a.number for a in attributes])
    return NumberedColumns(tuple(filled), agree)


def _ascend(numbers: Sequence[int | None]) -> bool:
    known = [number for number in numbers if number is not None]
    return all(a < b for a, b in itertools.pairwise(known))


def _fill_gaps(numbers: Sequence[int | None], existing: Sequence[int]) -> list[int | None]:
    """Give columns that lie between known ones the numbers between them, where there are exactly as many.

    >>> _fill_gaps([1, None, 4], [1, 2, 4])
    [1, 2, 4]
    >>> _fill_gaps([1, None, 4], [1, 2, 3, 4])
    [1, None, 4]
    """
    filled, at = list(numbers), 0
    while at < len(filled):
        end = at
        while end < len(filled) and filled[end] is None:
            end += 1
        if end > at:
            low = (filled[at - 1] if at else None) or 0
            high = (filled[end] if end < len(filled) else None) or max(existing, default=0) + 1
            between = [number for number in existing if low < number < high]
            if len(between) == end - at:
                filled[at:end] = between
        at = end + 1
    return filled
