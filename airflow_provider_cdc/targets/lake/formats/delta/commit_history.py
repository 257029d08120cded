"""The commits of a Delta table, newest first: which application has made them, and which operation has put other rows in the place of the table's.

A table that many topics share is asked for each of them. The commits are read once for all of them, however long ago the last one of a topic was.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

WRITER = "cdc.writer"
"""In a commit's metadata: the run that has written the batch into the change log."""
Actions = list[dict[str, Any]]
ReadActions = Callable[[int], Actions]
"""Reads the changes of a version of the table; nothing if its log is not kept any more."""
_MADE_ANEW = frozenset(
    {
        "CREATE OR REPLACE TABLE",
        "REPLACE TABLE",
        "CREATE OR REPLACE TABLE AS SELECT",
        "REPLACE TABLE AS SELECT",
        "CLONE",
    }
)
"""Operations of Delta's that put other rows and columns in the place of a table's, and drop its properties."""
_RESTORED = "RESTORE"


@dataclass(frozen=True, slots=True)
class LastCommit:
    """The newest commit of an application.

    :param batches: that it has
    :param writer: that it says; empty if it says none
    """

    version: int
    batches: tuple[int, ...]
    writer: str


class CommitHistory:
    """The commits of one table, as far as they were read; several threads may ask.

    What is kept grows with the applications, not with the commits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest = -1
        self._unread: list[tuple[int, int]] = []
        """First and last versions that were not read, ascending."""
        self._commits = dict[str, LastCommit]()
        self._replaced = -1
        """The newest version, as far as they were read, that has put other rows in the place of the table's."""

    def find_last_commit(self, app: str, newest: int, read: ReadActions) -> tuple[LastCommit | None, str]:
        """Find the newest commit of an application, and the operation since then that has put other rows in the place of the table's; empty if nothing has.

        :param newest: version that the table has
        """
        with self._lock:
            self._add_newer(newest, read)
            while True:
                commit = self._commits.get(app)
                at = -1 if commit is None else commit.version
                if self._replaced > at:
                    break
                if not self._unread or self._unread[-1][1] < at:
                    return commit, ""
                self._read_last(read)
        return follow_operations(app, newest, read)

    def _add_newer(self, newest: int, read: ReadActions) -> None:
        # the snapshot of another thread may be older; if the version is gone, the table is an older copy
        if newest < self._newest and not read(self._newest):
            self._newest, self._replaced = -1, -1
            self._unread.clear()
            self._commits.clear()
        if newest > self._newest:
            self._unread.append((self._newest + 1, newest))
            self._newest = newest

    def _read_last(self, read: ReadActions) -> None:
        """Read the newest version that was not read."""
        first, version = self._unread[-1]
        actions = read(version)
        if not actions:  # neither it nor older ones are kept any more
            self._unread.clear()
            self._commits = {app: commit for app, commit in self._commits.items() if commit.version > version}
            return
        self._unread.pop()
        if version > first:
            self._unread.append((first, version - 1))
        for app, commit in _commits_of(version, actions).items():
            if app not in self._commits or self._commits[app].version < version:
                self._commits[app] = commit
        if _operation(actions) in _MADE_ANEW | {_RESTORED}:
            self._replaced = max(self._replaced, version)


def follow_operations(app: str, newest: int, read: ReadActions) -> tuple[LastCommit | None, str]:
    """Find the same as :meth:`CommitHistory.find_last_commit`, through operations that put other rows in the place of a table's.

    A RESTORE brings back files and columns, and leaves transaction identifiers as they are; so does a statement that replaces the table.
    """
    version, back = newest, ""
    while version >= 0 and (actions := read(version)):  # older ones may be cleaned up
        if (commit := _commits_of(version, actions).get(app)) is not None:
            return commit, back
        operation = _operation(actions)
        if operation in _MADE_ANEW:
            return None, f"{operation} in version {version}"
        if operation == _RESTORED:
            back = back or f"RESTORE in version {version}"
            to = _info(actions)["operationParameters"].get("version")
            if to is None:  # it was one by time
                break
            version = int(to)
        else:
            version -= 1
    return None, back


def _commits_of(version: int, actions: Actions) -> dict[str, LastCommit]:
    batches = dict[str, list[int]]()
    for action in actions:
        if "txn" in action:
            batches.setdefault(action["txn"]["appId"], []).append(int(action["txn"]["version"]))
    writer = str(json.loads(_info(actions).get("userMetadata") or "{}").get(WRITER, "")) if batches else ""
    return {app: LastCommit(version, tuple(numbers), writer) for app, numbers in batches.items()}


def _operation(actions: Sequence[dict[str, Any]]) -> str:
    return str(_info(actions).get("operation"))


def _info(actions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
