"""The tables that a signal names, by regular expressions or quoted names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.signals.regex_limits import MOST, RegexTooComplex, count_match_steps
from airflow_provider_cdc.core.signals.requested_key_ranges import RequestedRange
from airflow_provider_cdc.core.signals.signal_request_parser import SignalRejected, pattern_from_name

_SHOWN = 20
"""How many names a message lists."""
_TOO_MUCH = (
    "matching the regular expression {pattern!r} with the table names may take longer than a run can wait. Write it without "
    "repeated groups, such as [a-z0-9_]* instead of ([a-z0-9_]+.?)*, with fewer .* or fewer optional parts; or list the tables one by one"
)


def match_tables(patterns: Iterable[str], tables: list[TableId]) -> tuple[list[TableId], list[str]]:
    """Return the tables that patterns name, in their order, and the patterns that name none."""
    matched: dict[TableId, None] = {}
    missing = []
    for pattern in patterns:
        matcher = re.compile(pattern_from_name(pattern))
        mine = [t for t in tables if matcher.fullmatch(str(t)) or matcher.fullmatch(t.full_name)]
        matched.update(dict.fromkeys(mine))
        if not mine:
            missing.append(pattern)
    return list(matched), missing


def check_work(patterns: Iterable[str], tables: list[TableId]) -> None:
    """Check that finding the tables that patterns name takes no more time than a run has.

    :raises SignalRejected: to find the tables that patterns name may take more time than a run has
    """
    check_names(patterns, [name for t in tables for name in (str(t), t.full_name)])


def check_names(patterns: Iterable[str], names: Iterable[str]) -> None:
    """Check that finding those of these names that patterns match takes no more time than there is.

    :raises SignalRejected: to find those of these names that patterns match may take more time than there is
    """
    steps, lengths = 0.0, [len(name) for name in names]
    for pattern in patterns:
        try:
            steps += count_match_steps(pattern_from_name(pattern), lengths)
            if steps > MOST:
                raise RegexTooComplex
        except RegexTooComplex:
            raise SignalRejected(_TOO_MUCH.format(pattern=_short(pattern))) from None


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}…"


def format_missing_tables(missing: list[str], captured: list[TableId]) -> str:
    """Return the message about patterns that name no captured table."""
    names = [str(t) for t in captured]
    near = {m: difflib.get_close_matches(m, names, n=1, cutoff=0.6) for m in missing[:_SHOWN]}
    shown_names = [f"{_short(m)} (did you mean {matches[0]}?)" if matches else _short(m) for m, matches in near.items()]
    if len(missing) > _SHOWN:
        shown_names.append(f"or any of {len(missing) - _SHOWN} more names")
    shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    return f"no captured table has the name {', '.join(shown_names)}; captured tables: {shown or 'none'}"


def conditions_by_table(conditions: Mapping[str, str], tables: list[TableId]) -> dict[str, str]:
    """Table → condition.

    :raises SignalRejected: one is for a table that is not asked for
    """
    by_table = dict.fromkeys((str(t) for t in tables), conditions[""]) if "" in conditions else {}
    for pattern, condition in conditions.items():
        if pattern:
            mine, _ = match_tables([pattern], tables)
            if not mine:
                raise SignalRejected(
                    f'"additional-conditions" has a condition for {pattern}, which is not one of the requested tables'
                )
            by_table.update({str(t): condition for t in mine})
    return by_table


def ranges_by_table(ranges: Iterable[RequestedRange], tables: list[TableId]) -> dict[TableId, list[RequestedRange]]:
    """Table → its ranges.

    :raises SignalRejected: one is for a table that is not asked for, or for several
    """
    by_table: dict[TableId, list[RequestedRange]] = {}
    by_name: dict[str, list[TableId]] = {}
    for entry in ranges:
        if entry.table not in by_name:
            by_name[entry.table] = match_tables([entry.table], tables)[0]
        mine = by_name[entry.table]
        if not mine:
            raise SignalRejected(
                f'"key-ranges" has a range for {entry.table}, which is not one of the requested tables'
            )
        if len(mine) > 1:
            shown = ", ".join(map(str, mine[:_SHOWN]))
            raise SignalRejected(
                f'"key-ranges" has a range for {entry.table}, which matches several tables: {shown}. Name one of them'
            )
        by_table.setdefault(mine[0], []).append(entry)
    return by_table
