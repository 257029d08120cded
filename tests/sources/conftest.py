"""The shared suite is no test module itself: its assertions are to be explained like those of one."""

import pytest

pytest.register_assert_rewrite("tests.sources.suite", "tests.sources.suite_incremental")
