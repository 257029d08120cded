"""The page about writing a source: its code is put into files as it stands, and run as the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dev import paths

PAGE = paths.ROOT / "docs" / "contributing" / "a-source.md"

_START = """
import sys
from pathlib import Path
from airflow_provider_cdc import sources

sources.__path__.append({folder!r})
sources.SOURCES["notebook"] = sources.SourceClassPaths(*[text.replace("{{__name__}}", sources.__name__) for text in {line!r}])
"""


@pytest.fixture(scope="module")
def page_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's files, and a program that runs others with the page's line in the registry."""
    folder, page = tmp_path_factory.mktemp("page"), PAGE.read_text()
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        name = re.match(r"# (\S+)\n", code)[1]  # type: ignore[index]
        path = folder / name.removeprefix("airflow_provider_cdc/").removeprefix("tests/sources/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    (folder / "sources" / "notebook" / "__init__.py").touch()
    (line,) = re.findall(r'"notebook": SourceClassPaths\(f"(.*?)", f"(.*?)"\),', page)
    start = _START.format(folder=str(folder / "sources"), line=line)
    (folder / "conftest.py").write_text(start)
    (folder / "with_notebook.py").write_text(f"{start}\nexec(Path(sys.argv[1]).read_text())\n")
    return folder


def _run(folder: Path, *command: str) -> str:
    env = os.environ | {"PYTHONPATH": str(paths.ROOT)}
    done = subprocess.run([sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_the_source_of_the_page_captures_what_the_page_says(page_files: Path) -> None:
    (text,) = re.findall(r"```\n(1 events.*?)```", PAGE.read_text(), re.DOTALL)
    assert _run(page_files, "with_notebook.py", "try_it.py") == text


def test_the_source_of_the_page_passes_the_tests_that_the_page_names(page_files: Path) -> None:
    (chosen,) = re.findall(r'dev/test tests/sources/test_suite_notebook.py -k "(.*)"', PAGE.read_text())
    shown = _run(page_files, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_suite_notebook.py", "-k", chosen)
    assert re.search(r"(\d+) passed", shown)[1] == str(len(chosen.split(" or ")))  # type: ignore[index]
