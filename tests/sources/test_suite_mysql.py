"""The shared suite on MySQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.sources.mysql_adapter import MySqlAdapter
from tests.sources.suite import SourceSuite
from tests.sources.suite.incremental import IncrementalSuite


class TestMySql(SourceSuite, IncrementalSuite):
    @pytest.fixture
    def db(self, mysql97: Any) -> Iterator[MySqlAdapter]:
        with ExitStack() as stack:
            yield MySqlAdapter(mysql97, "mysql", stack)
