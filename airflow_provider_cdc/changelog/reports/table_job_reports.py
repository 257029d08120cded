"""Types of the JSON objects that report a rebuild and a maintenance of tables."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class TableRebuilt(TypedDict):
    """A table that was built again: an entry of ``tables``.

    - ``topic``, ``location``: of the table; ``name``: its name in reports, if a route makes several tables of its topic; otherwise empty or missing
    - ``batch``: up to which it was built
    - ``seconds``: that it took
    """

    topic: str
    location: str
    batch: int
    seconds: float
    name: NotRequired[str]


class RebuildReport(TypedDict):
    """The report of the last rebuild of a target's tables.

    - ``connector``: its name
    - ``target``, ``location``: kind of the tables, and where they are
    - ``run``: the id that the run was given
    - ``tables``: those that were built
    - ``problem``: why the others were not; empty if all were
    - ``seconds``: that the run took
    """

    connector: str
    target: str
    location: str
    run: str
    tables: list[TableRebuilt]
    problem: str
    seconds: float


class MaintenanceStep(TypedDict):
    """A step of the maintenance of a table.

    - ``changed``: whether there was anything to do
    - ``said``: the work, or why there was none
    """

    changed: bool
    said: str


class TableMaintained(TypedDict):
    """The maintenance of one table: an entry of ``tables``.

    - ``topic``: of the table; of a table that several topics share, all of them with commas between
    - ``location``: of the table
    - ``steps``: step → its result
    - ``problem``: the error; empty if there was none
    - ``seconds``: that it took
    """

    topic: str
    location: str
    steps: dict[str, MaintenanceStep]
    problem: str
    seconds: float


class TargetMaintained(TypedDict):
    """The maintenance of the tables of one target.

    - ``connector``: its name
    - ``target``, ``location``: kind of the tables, and where they are
    - ``tables``: the work on each
    - ``seconds``: that the run took
    """

    connector: str
    target: str
    location: str
    tables: list[TableMaintained]
    seconds: float


class MaintenanceReport(TargetMaintained):
    """The report of the last maintenance of a target's tables.

    - ``run``: the id that the run was given
    """

    run: str
