"""The layout of the project: places of modules, their imports, and names."""

import re
import sys
import tomllib
from graphlib import TopologicalSorter

import grimp
import pytest

from airflow_provider_cdc.sources import SOURCES
from airflow_provider_cdc.targets.lake.formats import TARGETS
from dev import paths

MOST_MODULES = 18
"""In a folder, besides its ``__init__``."""


def test_spark_jobs_hide_no_module_of_pythons_own() -> None:
    """spark-submit puts the script's folder first on the path: a ``types.py`` there would hide Python's own."""
    names = {p.stem for p in (paths.ROOT / "spark_jobs").iterdir()}
    assert names & set(sys.stdlib_module_names) == set()


def test_sources_have_the_same_files() -> None:
    expected = {"config.py", "position.py", "source.py"}
    for folder in (paths.ROOT / "airflow_provider_cdc" / "sources").iterdir():
        if (folder / "source.py").exists():
            assert expected <= {p.name for p in folder.iterdir()}, folder


@pytest.fixture(scope="module", params=["airflow_provider_cdc", "dev"])
def imports(request: pytest.FixtureRequest) -> grimp.ImportGraph:
    """Every import of the package: those inside functions and those for types alone count too."""
    return grimp.build_graph(request.param, cache_dir=None, exclude_type_checking_imports=False)


def test_no_modules_import_each_other_in_a_circle(imports: grimp.ImportGraph) -> None:
    order = TopologicalSorter({m: imports.find_modules_directly_imported_by(m) for m in imports.modules})
    order.prepare()  # a CycleError names the circle


def test_no_folders_import_each_other_in_a_circle(imports: grimp.ImportGraph) -> None:
    """Count an import between modules as one between their folders, at the level where the two paths part."""
    order: TopologicalSorter[str] = TopologicalSorter()
    for importer in imports.modules:
        for imported in imports.find_modules_directly_imported_by(importer):
            one, other = importer.split("."), imported.split(".")
            parted = next((n for n, (a, b) in enumerate(zip(one, other, strict=False), 1) if a != b), None)
            if parted:  # else one is a folder that the other is in
                order.add(".".join(one[:parted]), ".".join(other[:parted]))
    order.prepare()


@pytest.mark.parametrize("imports", ["airflow_provider_cdc"], indirect=True)
def test_imports_for_types_and_inside_functions_count(imports: grimp.ImportGraph) -> None:
    late = imports.find_modules_directly_imported_by("airflow_provider_cdc.connector")
    assert {"airflow_provider_cdc.state.state_store", "airflow_provider_cdc.core.spi.source"} <= late


def test_no_folder_has_more_modules_than_one_overlooks(imports: grimp.ImportGraph) -> None:
    for folder in (paths.ROOT / module.replace(".", "/") for module in imports.modules):
        assert len([file for file in folder.glob("*.py") if file.name != "__init__.py"]) <= MOST_MODULES, folder


def test_the_package_promises_only_databases_and_targets_that_are_there() -> None:
    """Its description, keywords and extras are what people see before they install it."""
    project = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"])
    there = {*SOURCES, *TARGETS}
    assert extras <= {
        *there,
        "spark",
        "kafka",
        "openlineage",
        "s3",
        "ssh",
        "databricks",
        "amazon",
        "google",
        "livy",
        "kubernetes",
    }
    promised = " ".join([project["description"], *project["keywords"], *extras]).lower()
    assert there - {"memory"} <= set(re.findall(r"\w+", promised))
    for name in ("mongodb", "db2", "sqlserver", "iceberg", "hudi", "relational"):
        assert name in there or name not in promised
