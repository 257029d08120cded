"""Where things are, and what they may be called."""

import sys

from dev import paths


def test_spark_jobs_hide_no_module_of_pythons_own() -> None:
    """spark-submit puts the script's folder first on the path: a ``types.py`` there would be everybody's."""
    names = {p.stem for p in (paths.ROOT / "spark_jobs").iterdir()}
    assert names & set(sys.stdlib_module_names) == set()


def test_sources_have_the_same_files() -> None:
    expected = {"config.py", "position.py", "source.py"}
    for folder in (paths.ROOT / "airflow_provider_cdc" / "sources").iterdir():
        if (folder / "source.py").exists():
            assert expected <= {p.name for p in folder.iterdir()}, folder
