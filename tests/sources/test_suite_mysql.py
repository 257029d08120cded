"""The shared suite on MySQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.sources.mysql_adapter import MySqlAdapter
from tests.sources.suite import SourceSuite
from tests.sources.suite.adapter import Adapter
from tests.sources.suite.incremental import IncrementalSuite
from tests.support.pytest_runs.sampled import CaseSample


class TestMySql(SourceSuite, IncrementalSuite):
    @pytest.fixture
    def db(self, mysql97: Any) -> Iterator[MySqlAdapter]:
        with ExitStack() as stack:
            yield MySqlAdapter(mysql97, "mysql", stack)

    @pytest.mark.long  # lists are no matter of the server's kind: MariaDB's run is enough
    def test_whatever_list_is_widened_nothing_is_missing_without_a_word(
        self, filled_adapter: Adapter, tmp_path: Path, caplog: pytest.LogCaptureFixture, sampled: CaseSample
    ) -> None:
        super().test_whatever_list_is_widened_nothing_is_missing_without_a_word(
            filled_adapter, tmp_path, caplog, sampled
        )
