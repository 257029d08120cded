"""The shared suite on MariaDB."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.sources.mysql_adapter import MySqlAdapter
from tests.sources.suite import SourceSuite
from tests.sources.suite_incremental import IncrementalSuite


class TestMariaDb(SourceSuite, IncrementalSuite):
    @pytest.fixture
    def db(self, mariadb: Any) -> Iterator[MySqlAdapter]:
        with ExitStack() as stack:
            yield MySqlAdapter(mariadb, "mariadb", stack)
