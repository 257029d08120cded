"""Calls that hang do not keep the others from running, and each of them has one thread."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import time
from collections.abc import AsyncIterator, Iterable

import pytest

from airflow_provider_cdc.triggers.blocking_call_threads import CallThreads
from tests.support.patience import LONGEST_S

IN_TIME_S = 0.2


class HangingCalls:
    """Calls that do not come back before the test releases them."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.running = 0
        self._lock = threading.Lock()

    def call(self) -> str:
        with self._lock:
            self.running += 1
        assert self.go_on.wait(LONGEST_S)
        return "at last"


@contextlib.asynccontextmanager
async def hanging_calls() -> AsyncIterator[HangingCalls]:
    hanging_calls = HangingCalls()
    try:
        yield hanging_calls
    finally:
        hanging_calls.go_on.set()


def threads_of(keys: Iterable[object]) -> int:
    names = {f"cdc {key}" for key in keys}
    return sum(thread.name in names for thread in threading.enumerate())


async def wait_until(condition: object) -> None:
    """Wait until something is true."""
    end = time.monotonic() + LONGEST_S
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        await asyncio.sleep(0.005)


def test_a_result_and_an_error_come_back_and_the_thread_has_the_callers_context() -> None:
    known = contextvars.ContextVar("known", default="nothing")

    async def run_story() -> None:
        threads = CallThreads(2)
        known.set("the task")
        assert await threads.run("a", known.get) == "the task"
        assert await threads.run("a", threading.get_ident) != threading.get_ident()
        with pytest.raises(ZeroDivisionError):
            await threads.run("a", lambda: 1 / 0)

    asyncio.run(run_story())


def test_no_more_run_at_once_than_may_and_all_of_them_in_their_order() -> None:
    async def run_story() -> None:
        threads, most, begun = CallThreads(3), 0, list[int]()
        lock, now, three = threading.Lock(), 0, threading.Barrier(3, timeout=LONGEST_S)

        def count_running(number: int) -> int:
            nonlocal now, most
            with lock:
                begun.append(number)
                now += 1
                most = max(most, now)
            three.wait()  # one that has begun waits for the two beside it, which a busy machine may start later
            with lock:
                now -= 1
            return number

        results = await asyncio.gather(*(threads.run(n, lambda n=n: count_running(n)) for n in range(30)))  # type: ignore[misc]
        assert results == list(range(30))
        assert most == 3
        assert [n // 3 for n in begun] == sorted(n // 3 for n in begun)

    asyncio.run(run_story())


def test_any_number_of_calls_that_hang_holds_up_the_others_only_until_they_are_late() -> None:
    async def run_story() -> None:
        threads = CallThreads(4, patience_s=IN_TIME_S)
        async with hanging_calls() as down:
            calls = [asyncio.create_task(threads.run(f"down {n}", down.call)) for n in range(20)]
            await asyncio.sleep(0)
            # behind 20 that hang, four at a time, each for as long as it is waited for
            assert await asyncio.wait_for(threads.run("up", lambda: "here"), LONGEST_S) == "here"
            await wait_until(lambda: down.running == len(threads._late) == 20)
            assert not any(call.done() for call in calls)
            # and from now on they hold up no one, not even those that are asked again
            again = [asyncio.create_task(threads.run(f"down {n}", down.call)) for n in range(20)]
            await asyncio.sleep(0)
            assert await asyncio.wait_for(threads.run("up", lambda: "here"), LONGEST_S) == "here"
            assert down.running == 20
            down.go_on.set()
            assert set(await asyncio.gather(*calls, *again)) == {"at last"}

    asyncio.run(run_story())


def test_a_key_that_hangs_has_one_thread_however_often_it_is_asked() -> None:
    async def run_story() -> None:
        threads = CallThreads(2, patience_s=0.02)
        async with hanging_calls() as down:
            calls = [asyncio.create_task(threads.run(n, down.call)) for n in range(5)]
            await wait_until(lambda: down.running == 5)
            await wait_until(lambda: len(threads._late) == 5)
            calls += [asyncio.create_task(threads.run(n % 5, down.call)) for n in range(50)]
            # one that is in time has a place among those that are
            assert await asyncio.wait_for(threads.run("up", lambda: "here"), LONGEST_S) == "here"
            assert (down.running, threads_of(range(5))) == (5, 5)
            down.go_on.set()
            assert set(await asyncio.gather(*calls)) == {"at last"}
        assert down.running == 55

    asyncio.run(run_story())


def test_who_was_late_once_needs_no_place_that_others_who_hang_have() -> None:
    """On a busy machine, any call is late now and then."""

    async def run_story() -> None:
        threads = CallThreads(1, patience_s=IN_TIME_S)
        async with hanging_calls() as first, hanging_calls() as others:
            call = asyncio.create_task(threads.run("a", first.call))
            await wait_until(lambda: "a" in threads._late)
            down = [asyncio.create_task(threads.run(n, others.call)) for n in range(30)]
            first.go_on.set()
            await call
            assert "a" in threads._late, "it was late"
            await asyncio.wait_for(threads.run("a", lambda: None), LONGEST_S)
            others.go_on.set()
            await asyncio.gather(*down)

    asyncio.run(run_story())


def test_who_answers_in_time_again_is_among_the_others_again() -> None:
    async def run_story() -> None:
        threads = CallThreads(1, patience_s=IN_TIME_S)
        async with hanging_calls() as down:
            call = asyncio.create_task(threads.run("a", down.call))
            await wait_until(lambda: "a" in threads._late)
            down.go_on.set()
            await call
            while "a" in threads._late:  # the machine may be busy
                await threads.run("a", lambda: None)

    asyncio.run(run_story())


def test_a_call_whose_caller_is_cancelled_keeps_its_place_until_it_ends_and_one_that_waited_gives_it_up() -> None:
    async def run_story() -> None:
        threads = CallThreads(1)
        async with hanging_calls() as slow:
            running = asyncio.create_task(threads.run("a", slow.call))
            await wait_until(lambda: slow.running)
            waiting = asyncio.create_task(threads.run("b", lambda: "b"))
            behind = asyncio.create_task(threads.run("c", lambda: "c"))
            await asyncio.sleep(0.01)
            for task in (running, waiting):
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await asyncio.sleep(0.05)
            assert not behind.done()
            slow.go_on.set()
            assert await behind == "c"

    asyncio.run(run_story())


def test_a_process_ends_although_a_call_hangs() -> None:
    """A thread of an executor would be waited for."""
    import subprocess
    import sys

    code = (
        "import asyncio, time\n"
        "from airflow_provider_cdc.triggers.blocking_call_threads import CallThreads\n"
        "async def story():\n"
        "    task = asyncio.create_task(CallThreads(1).run('a', lambda: time.sleep(3600)))\n"
        "    await asyncio.sleep(0.1)\n"
        "asyncio.run(story())\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=LONGEST_S)
