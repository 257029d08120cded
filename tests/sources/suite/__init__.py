"""Requirements of every source, tested once for all of them.

A new source gets these tests by an adapter, which says how its database is written to, and a module of this form:

    class TestMemory(SourceSuite):
        @pytest.fixture
        def db(self) -> Adapter:
            return MemoryAdapter()
"""

from tests.sources.suite.adapter import INT, LONG, TEXT, Adapter, Changes, Row, UndoTransaction
from tests.sources.suite.common import RunKilled, dies_at_commit, equal, start_connector
from tests.sources.suite.filters import Lists
from tests.sources.suite.restarts import Restarts
from tests.sources.suite.rows import Rows
from tests.sources.suite.set_aside import SetAside
from tests.sources.suite.source import SourceContract
from tests.sources.suite.structure import Structure


class SourceSuite(Rows, Structure, Lists, Restarts, SetAside, SourceContract):
    """All that every source must do. Subclasses give the fixture ``db``."""


__all__ = [
    "INT",
    "LONG",
    "TEXT",
    "Adapter",
    "Changes",
    "Row",
    "RunKilled",
    "SourceSuite",
    "UndoTransaction",
    "dies_at_commit",
    "equal",
    "start_connector",
]
