"""Groups of tests that share a worker when several run at once, and their fate when a worker dies."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

SHARED = ("tests/targets/lake/", "tests/system/")
"""Folders whose tests share a Spark session, or an Airflow with all of its services: one for each file would cost more than it saves."""
HALVED = "tests/targets/lake/"
"""The one that takes as long as all the rest: its folders up to ``jobs`` are one group, the others another one."""


def group_of(nodeid: str) -> str:
    """Return the group of a test, which runs in one worker: a file, a folder of :data:`SHARED`, or half of one.

    >>> group_of("tests/core/test_envelope.py::test_keys")
    'tests/core/test_envelope.py'
    """
    file = nodeid.partition("::")[0]
    folder = next((folder for folder in SHARED if file.startswith(folder)), file)
    if folder != HALVED:
        return folder
    return f"{folder}, {'first' if file < f'{HALVED}k' else 'second'} half"


class GroupScheduling(LoadFileScheduling):  # type: ignore[misc]
    """Hands out groups in the order that the workers have put them in.

    xdist 3.8 waits for ever after a worker has died, as one does whose test hangs: it hands out again what the worker had done already, which no one
    can complete, and the test that killed it (https://github.com/pytest-dev/pytest-xdist/issues/1323, 1327, 1378). Here another worker gets what
    was not begun.
    """

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        # one that has died meanwhile: what it was to get is handed out again by remove_node, which is called next
        with suppress(OSError):
            super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        if node in self.registered_collections:  # one that is just starting does not know its tests yet
            super()._reschedule(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """A worker ended; returns the test that it died of, if it had something to do."""
        groups = [tests for tests in self.assigned_work[node].values() if not all(tests.values())]
        killer = next((test for tests in groups for test, done in tests.items() if not done), None)
        if killer is not None:
            groups[0][killer] = True
        self.assigned_work.pop(node)
        self.workqueue.update({group_of(next(iter(tests))): tests for tests in groups if not all(tests.values())})
        for other in self.assigned_work:
            self._reschedule(other)
        return killer

    def schedule(self) -> None:
        """Hand out tests: two groups to each worker, since one that knows of no second test does not begin its last one."""
        super().schedule()
        for node in self.nodes:
            self._reschedule(node)
