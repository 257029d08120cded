"""Decides whose turn it is to apply a change log to a target.

A long-lived apply hands over to the next one without two of them at the same tables.

A turn is a small file with a number, which is created only if it is absent. The owner of the highest number is next; every owner
of a lower number ends after what it is committing, and says so in its own file. No other process writes to that file, so no store needs more than it
has anyway: atomic creation and atomic replacement. A turn whose owner has died is recognised by its heartbeat.

Turns keep two from doing the same work. They do not make tables right: should one that was taken for dead continue to write, the tables'
markers and commits decide, as they do without any turn.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import orjson

from airflow_provider_cdc.changelog.files.liveness_file_parser import read_sign
from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.reports.apply_report import ApplyReport
from airflow_provider_cdc.core.errors import CdcError

log = logging.getLogger(__name__)

POLL_S = 0.5
"""How often the one whose turn it is looks for a successor."""
BEAT_S = 5.0
"""How often it shows that it is alive."""
DEAD_S = 20.0
"""A turn without a heartbeat for so long is over."""
NO_SIGN = "it has shown no sign of life any more"
"""The error of such a turn, which others have ended."""
_SKEW_S = 10.0
"""How far clocks of machines may differ before the age of a heartbeat says nothing."""
_MISSED_BEATS = 1.8
"""For how many heartbeats one that looks old is watched all the same."""
PATIENCE_S = 300.0
"""How long the storage may not answer, again and again, while a turn is waited for."""
_KEPT = 20
"""Number of files of ended turns that stay, for readers of their reports."""
_FOLDER = "turns"


class ApplyTurns:
    """The turns of one connector and one target.

        >>> with ApplyTurns(changelog.storage, "shop", "delta", "/lake/{table}").take("me") as turn:
        ...     turn.wait(lambda: False)
        ...     while not turn.successor: ...

    :param location: as in the job's arguments; with the kind of target, it says which target it is
    """

    def __init__(self, storage: Storage, connector: str, target: str, location: str) -> None:
        digest = hashlib.sha256(location.encode()).hexdigest()[:12]
        self._storage, self._folder = storage, storage.join_path(connector, _FOLDER, f"{target}-{digest}")
        self._announcements = f"{self._folder}/announced.json"
        self.connector = connector

    def open_turn(self, owner: str) -> ApplyTurn:
        """Return the next turn. The owner of the present one sees it, and ends.

        :param owner: names the run in logs, and for :meth:`find_turn`
        """
        return ApplyTurn(self, owner)

    def stop_turn(self, owner: str) -> bool:
        """End the turn of an owner, if it is the last one: the next turn is over at once.

        :return: whether it was
        """
        number = max(self.list_numbers(), default=0)
        turn = self.read_turn(number) if number else None
        if turn is None or turn["owner"] != owner:
            return False
        if not turn["ended"]:
            self.create_turn(number + 1, {**_document(_stopped_owner(owner)), "ended": True})
        return True

    def find_turn(self, owner: str) -> dict[str, Any] | None:
        """Find the file of an owner's last turn; ``None`` if there is none.

        It has ``owner``, ``at`` (seconds since 1970 of its last heartbeat), ``ended``, and ``report``, which has its results if it has ended by itself.
        """
        for number in reversed(self.list_numbers()):
            turn = self.read_turn(number)
            if turn is not None and turn["owner"] == owner:
                return turn
        return None

    def record_announcement(self, owner: str) -> None:
        """Note that a task has emitted the asset events of an owner's run, or remembers them for its next try; also of an owner that had no turn."""
        others = [name for name in self._announced() if name != owner]
        self._storage.replace(self._announcements, orjson.dumps([*others, owner][-_KEPT:]))

    def is_announced(self, owner: str) -> bool:
        """Check whether an announcement is noted of one of the last owners."""
        return owner in self._announced()

    def _announced(self) -> list[str]:
        data = self._storage.read(self._announcements)
        try:
            names = [] if data is None else orjson.loads(data)
        except ValueError:
            names = []
        return [str(name) for name in names] if isinstance(names, list) else []

    def has_ended(self, owner: str) -> bool:
        """Check whether an owner's last turn has ended, or shows no sign of life any more; also of one that never had any."""
        turn = self.find_turn(owner)
        return turn is None or not _is_alive(turn)

    def newest_owner(self) -> str:
        """Return the owner of the last turn; empty if there never was one."""
        turn = next((f for n in reversed(self.list_numbers()) if (f := self.read_turn(n)) is not None), None)
        return "" if turn is None else str(turn["owner"])

    def passed_on(self, owner: str) -> bool:
        """Check whether another owner has a later turn than an owner.

        That its own was ended by :meth:`stop_turn` gives it to no other owner.
        """
        return self.newest_owner() not in (owner, _stopped_owner(owner))

    def has_live_turn(self) -> bool:
        """Check whether an owner has a turn, and shows that it is alive."""
        turn = next((f for n in reversed(self.list_numbers()) if (f := self.read_turn(n)) is not None), None)
        return turn is not None and _is_alive(turn)

    # -- files --------------------------------------------------------------------------------------------------------

    def list_numbers(self) -> list[int]:
        """Numbers of the turns whose files are there, ascending."""
        names = (name.removesuffix(".json") for name in self._storage.list(self._folder))
        return sorted(int(name) for name in names if name.isdigit())

    def has_turn(self, number: int) -> bool:
        """Check whether the file of a turn is there, by one request."""
        return self._storage.exists(self._path(number))

    def read_turn(self, number: int) -> dict[str, Any] | None:
        """Read a turn's file; ``None`` if it is gone, or is none of ours."""
        document = read_sign(self._storage.read(self._path(number)))
        return None if document is None else {**_document(""), **document}

    def create_turn(self, number: int, document: dict[str, Any]) -> bool:
        """Create a turn's file; not if there is one."""
        try:
            self._storage.create(self._path(number), orjson.dumps(document))
        except FileExistsError:
            # a request that was repeated because its reply was lost finds its own file
            return self.read_turn(number) == document
        return True

    def replace_turn(self, number: int, document: dict[str, Any]) -> None:
        self._storage.replace(self._path(number), orjson.dumps(document))

    def prune_turns(self, before: int) -> None:
        """Delete files of turns that are long over."""
        for number in [n for n in self.list_numbers() if n < before][:-_KEPT]:
            self._storage.delete(self._path(number))

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:012d}.json"


class ApplyTurn:
    """A turn, in a ``with`` block. A thread shows meanwhile that it is alive, and looks for a successor."""

    def __init__(self, turns: ApplyTurns, owner: str) -> None:
        self._turns, self.owner, self.number = turns, owner, 0
        self.successor = ""
        """The owner that has taken over; empty as long as no owner has."""
        self._over = threading.Event()
        self._report: ApplyReport | None = None
        self._thread = threading.Thread(target=self._show, name="cdc-turn", daemon=True)

    @property
    def is_stopped(self) -> bool:
        """Check whether :meth:`ApplyTurns.stop_turn` has ended it: no other owner has taken over."""
        return self.successor == _stopped_owner(self.owner)

    def __enter__(self) -> Self:
        number = max(self._turns.list_numbers(), default=0) + 1
        while not self._turns.create_turn(number, _document(self.owner)):
            number += 1
        self.number = number
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        try:
            ended = {"ended": True, "report": self._report, "error": "" if e is None else str(e) or repr(e)}
            self._turns.replace_turn(self.number, {**_document(self.owner), **ended})
            self._turns.prune_turns(self.number)
        except CdcError as refused:  # its heartbeat ends all the same
            log.warning(
                "The end of this apply turn could not be recorded; the next turn waits %.0f s: %s", DEAD_S, refused
            )

    def set_report(self, report: ApplyReport) -> None:
        """Set the report that is to be in the file when the turn ends."""
        self._report = report

    def wait_for_earlier_turns(self, ending: Callable[[], bool]) -> bool:
        """Wait until all turns before this one are over.

        :param ending: returns whether this one is to end, too
        :return: whether they are; not if this one has to end meanwhile
        :raises CdcError: the storage has not answered for :data:`PATIENCE_S`
        """
        beats: dict[int, tuple[float, float]] = {}
        logged, answered = False, time.monotonic()
        while not ending():
            try:
                before = [n for n in self._turns.list_numbers() if n < self.number and not self._is_over(n, beats)]
                if not before:
                    return True
                if not logged:
                    last_turn = self._turns.read_turn(before[-1])
                    log.info(
                        "Waiting until %s has finished its commit.",
                        last_turn["owner"] if last_turn else "the last turn",
                    )
                    logged = True
                answered = time.monotonic()
            except CdcError as e:  # the turn before has been asked to end: if this turn gave up, no turn would continue
                if time.monotonic() - answered > PATIENCE_S:
                    raise
                log.warning("The earlier apply turns cannot be read; retrying: %s", e)
            self._over.wait(POLL_S / 2)
        return False

    def _is_over(self, number: int, beats: dict[int, tuple[float, float]]) -> bool:
        turn = self._turns.read_turn(number)
        if turn is None or turn["ended"]:
            return True
        now = time.monotonic()
        if number not in beats or beats[number][0] != turn["at"]:
            beats[number] = turn["at"], now
        # an old time may come from a clock that differs, or was set back: an owner that lives writes another time soon
        long_ago = time.time() - turn["at"] > DEAD_S + _SKEW_S
        if now - beats[number][1] > (_MISSED_BEATS * BEAT_S if long_ago else DEAD_S):
            log.warning("%s stopped writing its heartbeat: its apply turn is over.", turn["owner"])
            self._turns.replace_turn(number, {**turn, "ended": True, "error": NO_SIGN})
            return True
        return False

    def _show(self) -> None:
        beaten, warned = time.monotonic(), False
        while not self._over.wait(POLL_S):
            try:
                # the next turn has the next number; a list of all, which costs more, is for one that is not there any more
                if not self.successor and (
                    self._turns.has_turn(self.number + 1) or time.monotonic() - beaten >= BEAT_S
                ):
                    self._look()
                if time.monotonic() - beaten >= BEAT_S:
                    self._turns.replace_turn(self.number, _document(self.owner))
                    beaten, warned = time.monotonic(), False
            except CdcError as e:  # the work itself says more, and is tried again; a disk that is full has room later
                if not warned:
                    log.warning(
                        "The heartbeat of the apply turn of %s could not be written: %s", self._turns.connector, e
                    )
                warned = True

    def _look(self) -> None:
        newest = max(self._turns.list_numbers(), default=0)
        if newest > self.number:
            turn = self._turns.read_turn(newest)
            self.successor = turn["owner"] if turn is not None else f"turn {newest}"
            log.info("The apply turn of %s passes to %s.", self._turns.connector, self.successor)


def _is_alive(turn: dict[str, Any]) -> bool:
    """Check whether the owner of a turn's file shows that it is there; clocks may differ."""
    return not turn["ended"] and abs(time.time() - turn["at"]) < DEAD_S + _SKEW_S


def _stopped_owner(owner: str) -> str:
    """Return the owner of the turn after one that :meth:`ApplyTurns.stop_turn` has ended."""
    return f"nobody: {owner} was ended"


def _document(owner: str) -> dict[str, Any]:
    return {"owner": owner, "at": time.time(), "ended": False, "report": None, "error": ""}
