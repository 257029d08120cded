"""What each signal does (Debezium connector documents, "Sending signals to a connector")."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.errors import CdcError, ConfigError
from airflow_provider_cdc.core.incremental import check_form
from airflow_provider_cdc.core.manifest import SchemaChangeRecord
from airflow_provider_cdc.core.notifications import Type
from airflow_provider_cdc.core.offset_plan import OffsetPlanner
from airflow_provider_cdc.core.patterns import MOST, TooMuch, ways
from airflow_provider_cdc.core.position import IncrementalState, Scan
from airflow_provider_cdc.core.schema import TableId
from airflow_provider_cdc.core.signals import (
    TYPES,
    ExecuteSnapshot,
    Fate,
    LogMessage,
    Other,
    PauseSnapshot,
    Refused,
    Request,
    ResumeSnapshot,
    SchemaChanges,
    Signal,
    SignalContext,
    StopSnapshot,
    custom_actions,
    unquoted,
)
from airflow_provider_cdc.core.telling import incremental_ended, incremental_started

if TYPE_CHECKING:
    from airflow_provider_cdc.core.run import Run

log = logging.getLogger(__name__)

_TOLD = 20
"""Names that an answer tells, of those that are too many."""
_TOO_MUCH = (
    "to match the regular expression {pattern!r} with the names of the tables may take longer than a run can wait. Write it without "
    "repeated groups, as [a-z0-9_]* in place of ([a-z0-9_]+.?)*, with fewer .* or fewer optional parts; or name the tables one by one"
)


def carry_out(run: Run, signal: Signal, request: Request) -> str | None:
    """Do what a signal asks for.

    :return: what was done; ``None`` when it is only begun
    :raises Refused: it cannot be done
    """
    match request:
        case ExecuteSnapshot():
            return _execute(run, signal, request)
        case StopSnapshot():
            return _stop(run, signal, request)
        case PauseSnapshot():
            return _pause(run)
        case ResumeSnapshot():
            return _resume(run)
        case LogMessage():
            text = request.message.replace("{}", run.where())
            log.info("%s", text)
            return text
        case SchemaChanges():
            return _schema_changes(run, request)
        case Other():
            return _other(run, request)


# -- snapshots --------------------------------------------------------------------------------------------------------


def _execute(run: Run, signal: Signal, request: ExecuteSnapshot) -> str | None:
    if not request.collections:
        return "it names no table: nothing to do"
    captured = _captured(run)
    _check_work([*request.collections, *request.conditions], captured)
    tables, missing = _matching(request.collections, captured)
    if not tables:
        raise Refused(_nothing(missing, captured))
    conditions = _conditions(request.conditions, tables)
    names = [str(t) for t in tables]
    for table in tables:
        run.incremental.tables[str(table)] = table
    if request.blocking:
        if missing:
            raise Refused(_nothing(missing, captured))
        waiting = {name: number for name, number in run.offset.snapshot.requests.items() if name in names}
        if waiting:
            told = ", ".join(f"{name} (signal {number})" for name, number in waiting.items())
            raise Refused(f"tables wait to be read whole already: {told}")
        selects = {name: conditions[name] for name in names if name in conditions}
        run.pend(tables, request=signal.number, selects=selects)
        return None
    try:
        check_form(run.config)
    except CdcError as e:
        raise Refused(f"{e.what} {e.remedy or ''}".strip()) from e
    state = run.scans.state
    scans = [
        Scan(
            table=name, request=signal.number, signal=signal.id, tables=len(names), condition=conditions.get(name),
            surrogate=request.surrogate, replace=request.replace, chunk_rows=request.chunk_rows,
        )
        for name in names
    ]  # fmt: skip
    failed = dict(state.failed)
    if missing:
        failed[str(signal.number)] = _nothing(missing, captured)
    run.scans.state = state.model_copy(update={"scans": [*state.scans, *scans], "failed": failed})
    incremental_started(run.batcher, signal, names)
    return None


def _captured(run: Run) -> list[TableId]:
    found = {*run.history.tables, *run.source.discover()}
    return sorted((t for t in found if run.filters.table(t) and t != run.signals), key=str)


def _matching(patterns: Iterable[str], tables: list[TableId]) -> tuple[list[TableId], list[str]]:
    """The tables that patterns name, in their order, and the patterns that name none."""
    found: dict[TableId, None] = {}
    missing = []
    for pattern in patterns:
        matcher = re.compile(unquoted(pattern))
        mine = [t for t in tables if matcher.fullmatch(str(t)) or matcher.fullmatch(t.full_name)]
        found.update(dict.fromkeys(mine))
        if not mine:
            missing.append(pattern)
    return list(found), missing


def _check_work(patterns: Iterable[str], tables: list[TableId]) -> None:
    """
    :raises Refused: to find the tables that patterns name may take more time than a run has
    """
    steps, lengths = 0.0, [len(name) for t in tables for name in (str(t), t.full_name)]
    for pattern in patterns:
        try:
            steps += ways(unquoted(pattern), lengths)
            if steps > MOST:
                raise TooMuch
        except TooMuch:
            raise Refused(_TOO_MUCH.format(pattern=_short(pattern))) from None


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}…"


def _nothing(missing: list[str], captured: list[TableId]) -> str:
    names = [str(t) for t in captured]
    near = {m: difflib.get_close_matches(m, names, n=1, cutoff=0.6) for m in missing[:_TOLD]}
    told = [f"{_short(m)} (did you mean {found[0]}?)" if found else _short(m) for m, found in near.items()]
    if len(missing) > _TOLD:
        told.append(f"nor are {len(missing) - _TOLD} more of the names")
    shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    return f"no captured table is called {', '.join(told)}; captured are {shown or 'none'}"


def _conditions(conditions: Mapping[str, str], tables: list[TableId]) -> dict[str, str]:
    """Table → condition.

    :raises Refused: one is for a table that is not asked for
    """
    found = dict.fromkeys((str(t) for t in tables), conditions[""]) if "" in conditions else {}
    for pattern, condition in conditions.items():
        if pattern:
            mine, _ = _matching([pattern], tables)
            if not mine:
                raise Refused(f'"additional-conditions" has one for {pattern}, which is not among the tables asked for')
            found.update({str(t): condition for t in mine})
    return found


def _stop(run: Run, signal: Signal, request: StopSnapshot) -> str:
    state = run.scans.state
    if not state.scans:
        return "no incremental snapshot is running"
    ids = [run.incremental.id(scan.table) for scan in state.scans]
    if request.collections is None:
        gone = set(ids)
    else:
        _check_work(request.collections, ids)
        found, missing = _matching(request.collections, ids)
        gone = set(found)
        if not gone:
            raise Refused(
                f"no table that is being read is called {', '.join(missing)}; they are {', '.join(map(str, ids))}"
            )
    run.incremental.cancel()
    kept = [scan for scan, table in zip(state.scans, ids, strict=True) if table not in gone]
    dropped = [scan for scan, table in zip(state.scans, ids, strict=True) if table in gone]
    failed = dict(state.failed)
    for number in {scan.request for scan in dropped}:
        names = ", ".join(scan.table for scan in dropped if scan.request == number)
        text = f"{names} stopped by signal {signal.id or signal.number}"
        failed[str(number)] = "; ".join(filter(None, [failed.get(str(number)), text]))
        first = next(scan for scan in dropped if scan.request == number)
        incremental_ended(run.batcher, first, Type.ABORTED, data_collections=names)
        if not any(scan.request == number for scan in kept):
            run.batcher.answer(number, Fate.FAILED, failed.pop(str(number)))
    run.scans.state = IncrementalState(scans=kept, paused=state.paused and bool(kept), failed=failed)
    if not kept:  # nothing is left that could be paused
        run.metrics.chunks.resume()
    return "stopped " + ", ".join(scan.table for scan in dropped)


def _pause(run: Run) -> str:
    state = run.scans.state
    if not state.scans:
        return "no incremental snapshot is running"
    if not state.paused:
        run.incremental.cancel()
        run.scans.state = state.model_copy(update={"paused": True})
        run.metrics.chunks.pause()
        incremental_ended(run.batcher, state.scans[0], Type.PAUSED)
    return f"paused at {state.scans[0].table}"


def _resume(run: Run) -> str:
    state = run.scans.state
    if not state.scans or not state.paused:
        return "no incremental snapshot is paused"
    run.scans.state = state.model_copy(update={"paused": False})
    run.metrics.chunks.resume()
    incremental_ended(run.batcher, state.scans[0], Type.RESUMED)
    return f"goes on with {state.scans[0].table}"


# -- others -----------------------------------------------------------------------------------------------------------


def _schema_changes(run: Run, request: SchemaChanges) -> str:
    try:
        changes = [run.source.table_of(change, request.database, request.schema) for change in request.changes]
    except CdcError as e:
        raise Refused(f"{e.what} {e.remedy or ''}".strip()) from e
    for change in changes:  # all of them are taken over, or none
        if not run.tables.captured(change.id):
            raise Refused(f"{change.id} is not captured")
        if change.table is not None:
            try:
                run.envelope.topic(change.id)
            except ConfigError as e:
                raise Refused(e.what) from e
    done = []
    run.history.leave(changes)
    for change in changes:
        versioned = run.history.apply(change)
        if versioned is None:
            continue
        record = SchemaChangeRecord(
            seq=run.batcher.seq + 1, ddl="", database=request.database, position=run.offset.position or {}, ts_us=0,
            changes=[versioned],
        )  # fmt: skip
        table = versioned.table
        selected = {} if table is None else {run.envelope.topic(table.id): run.envelope.selected(table)}
        run.batcher.add_change(record, selected)
        done.append(str(change.id))
    return f"took over the structure of {', '.join(done)}" if done else "the structures were known already"


def _other(run: Run, request: Other) -> str:
    if request.type == run.source.POSITION_SIGNAL:
        return _set_position(run, request.data)
    found = custom_actions()
    action = found.get(request.type)
    if action is None:
        known = sorted({*TYPES, *found, *filter(None, [run.source.POSITION_SIGNAL])})
        near = difflib.get_close_matches(request.type, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise Refused(f"{request.type!r} is not a type of signal{hint} Valid values are: {', '.join(known)}")
    context = SignalContext(run.parts.name, run.where(), log.info)
    return action(context, request.data) or "done"


def _set_position(run: Run, data: dict[str, Any]) -> str:
    """Move the offset, with the guard that ``airflow cdc offset set`` has."""
    try:
        position = run.source.position_of(data)
        run.source.verify_position(position)
    except CdcError as e:
        raise Refused(" ".join(filter(None, [e.what, e.where, e.remedy]))) from e
    store, name = run.parts.store, run.parts.name
    stored = replace(store.load(name), offset=run.offset)
    plan = OffsetPlanner(name, stored, run.source, (), store.schema_history(name)).move(position)
    if plan.problems:
        raise Refused(" ".join(plan.problems))
    before = run.where()
    for told in plan.told:
        log.warning("%s", told)
    run.reposition(position)
    return f"goes on from {position} instead of {before} ({plan.effect.value})"
