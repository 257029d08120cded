"""The state tables, for all triggers of a triggerer: one connection, and one query for all that ask at about the same time.

>>> async with shared_state("cdc_state_default") as state:
...     offset = await state.ask("shop", lambda record, store: record and record.offset)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from airflow_provider_cdc.core.errors import StateUnavailable
from airflow_provider_cdc.hooks.state import CdcStateHook, records_of, translate_database_errors
from airflow_provider_cdc.triggers.blocking_call_threads import CallThreads

if TYPE_CHECKING:
    from airflow_provider_cdc.core.spi.state_records import ConnectorRecord
    from airflow_provider_cdc.hooks.state import StateAddress
    from airflow_provider_cdc.state.state_store import StateStore

T = TypeVar("T")

log = logging.getLogger(__name__)

GATHER_S = 0.1
"""How long a question waits for those that come with it. Triggers poll at the same moments: theirs come together."""
REFRESH_S = 60.0
"""How often the Airflow connection is looked up again, as long as its values can be used."""
_PATIENCE_S = 2.0
"""How long one poll tries again before it counts as failed; the next poll follows."""


class SharedState:
    """The state tables of one Airflow connection. Made by :func:`shared_state`.

    :param conn_id: Airflow connection to the state tables
    """

    def __init__(self, conn_id: str) -> None:
        self._tables = _StateReader(conn_id)
        self._thread = CallThreads(1)  # one poll after the other: none closes tables that another one uses
        self._questions: list[_StateQuestion] = []
        self._polling: asyncio.Task[None] | None = None
        self.users = 0

    async def query_connector(self, connector: str, question: Callable[[ConnectorRecord | None, StateStore], T]) -> T:
        """Return the answer to a question about a connector, asked in a thread.

        If the database cannot be reached, the next question looks its connection up again, as it may have been corrected; otherwise it is looked up
        once a minute.

        :param question: gets the connector's record in the state tables, as it was after this call, and the store for further reads. It must not
            ask anything else that may take long: all others wait for it
        :raises CdcError: as the question raises; :class:`StateUnavailable` if the database cannot be reached
        """
        state_question = _StateQuestion(connector, question, asyncio.get_running_loop().create_future())
        self._questions.append(state_question)
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll())
        return await state_question.answer  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Close the connection after the poll that is being made, if there is one."""
        await self._thread.run("state", self._tables.close)

    async def _poll(self) -> None:
        await asyncio.sleep(GATHER_S)
        # those of triggers that were cancelled are not asked: the tables may be closed already, and would stay open
        while open_questions := [question for question in self._questions if not question.answer.done()]:
            self._questions = []
            try:
                answers = await self._thread.run(
                    "state",
                    lambda questions=open_questions: self._tables.answer_questions(questions),  # type: ignore[misc]
                )
            except Exception as e:  # passed to all questions
                answers = [e] * len(open_questions)
            for question, answer in zip(open_questions, answers, strict=True):
                if question.answer.done():  # its trigger was cancelled
                    continue
                if isinstance(answer, Exception):
                    question.answer.set_exception(answer)
                else:
                    question.answer.set_result(answer)


@dataclass(frozen=True, slots=True, eq=False)
class _StateQuestion:
    connector: str
    question: Callable[[ConnectorRecord | None, StateStore], Any]
    answer: asyncio.Future[Any]


class _StateReader:
    """Opens the state tables and asks them, in one thread at a time."""

    def __init__(self, conn_id: str) -> None:
        self._conn_id = conn_id
        self._store: StateStore | None = None
        self._address: StateAddress | None = None
        self._looked_up = 0.0

    def answer_questions(self, questions: Sequence[_StateQuestion]) -> list[Any]:
        """Return the answer to each question, or its error.

        A problem of one connector does not affect the others.

        :raises CdcError: the tables cannot be queried
        """
        store = self._opened()
        try:
            with translate_database_errors():
                records = records_of(store, {question.connector for question in questions})
                return [_answer(question, records[question.connector], store) for question in questions]
        except StateUnavailable:
            self.close()  # the next poll looks its connection up
            raise

    def close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def _opened(self) -> StateStore:
        now = time.monotonic()
        if self._store is not None and now - self._looked_up < REFRESH_S:
            return self._store
        address = self._look_up()
        self._looked_up = now
        if self._store is not None and address == self._address:
            return self._store
        self.close()
        store = CdcStateHook(self._conn_id).get_conn(address=address, patience_s=_PATIENCE_S)
        try:
            with translate_database_errors():
                store.check_tables()
        except BaseException:
            store.close()
            raise
        self._store, self._address = store, address
        return store

    def _look_up(self) -> StateAddress:
        try:
            return CdcStateHook(self._conn_id).resolve_address()
        except Exception as e:
            if self._store is None or self._address is None:
                raise
            # Airflow says the same when its API server does not answer: a working connection is not given up for that
            log.warning(
                "Connection %s cannot be looked up; continuing with its last known settings. %s", self._conn_id, e
            )
            return self._address


def _answer(question: _StateQuestion, record: ConnectorRecord | Exception | None, store: StateStore) -> Any:
    if isinstance(record, Exception):
        return record
    try:
        with translate_database_errors():
            return question.question(record, store)
    except StateUnavailable:
        raise
    except Exception as e:  # raised where the answer is waited for
        return e


_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, SharedState]] = WeakKeyDictionary()
_closing: set[asyncio.Task[None]] = set()
"""Tasks that close tables: the event loop keeps only weak references to tasks."""


@contextlib.asynccontextmanager
async def shared_state(conn_id: str) -> AsyncIterator[SharedState]:
    """Yield the state tables of a connection.

    They are opened with the first question, and closed when the last one leaves.
    """
    states = _of_loop.setdefault(asyncio.get_running_loop(), {})
    state = states.setdefault(conn_id, SharedState(conn_id))
    state.users += 1
    try:
        yield state
    finally:
        state.users -= 1
        if not state.users:
            del states[conn_id]
            closing = asyncio.create_task(state.close())
            _closing.add(closing)
            closing.add_done_callback(_closing.discard)
            await asyncio.shield(closing)
