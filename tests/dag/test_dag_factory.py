"""DAGs from files: all that a file may say, and all that may be wrong with one while the others continue."""

from __future__ import annotations

import gc
import inspect
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.dag import ConnectorDefinition, cdc_dag, cdc_dags, cdc_task_group, lifecycle_dag
from airflow_provider_cdc.dag.definition_parser import MOST_BYTES, MOST_LEVELS
from airflow_provider_cdc.dag.definition_schema import (
    ApplyPart,
    ConnectorPart,
    DagDefinition,
    DagPart,
    GroupPart,
    TaskPart,
)
from airflow_provider_cdc.operators.apply_changes import ApplyChangesOperator
from airflow_provider_cdc.operators.broken_definition import BrokenDefinitionOperator
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.sensors.changes_available import ChangesAvailableSensor
from tests.support.airflow.airflow_versions import AirflowFailException, serialize_dag, takes_bundle_name

PARSING = "_AIRFLOW_PARSING_CONTEXT_DAG_ID"
"""The environment variable by which Airflow says which DAG it needs of a file."""
GOOD = "name: good\nsource: memory\nchangelog: /lake\nconn_id: db\n"
SHOP = "name: shop\nsource: memory\nchangelog: /lake\nconn_id: db\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "fleet"
    folder.mkdir()
    (folder / "good.yaml").write_text(GOOD)
    return folder


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def is_broken(dag: DAG) -> bool:
    return [type(task) for task in dag.tasks] == [BrokenDefinitionOperator]


def fail_message(dag: DAG) -> str:
    """Return the message with which the only task of a broken definition fails."""
    (task,) = dag.tasks
    with pytest.raises(AirflowFailException) as e:
        task.execute({})
    return str(e.value)


def only_broken(folder: Path) -> str:
    """Check that one of the files breaks itself and no other; return the message of its DAG."""
    fleet = cdc_dags(folder)
    assert not is_broken(fleet.dags["cdc_good"])
    assert [one.name for one in fleet.connectors] == ["good"]
    (name, error), (dag,) = *fleet.broken.items(), [dag for dag in fleet.dags.values() if is_broken(dag)]
    assert fail_message(dag) == str(error)
    assert name in fail_message(dag)
    assert "cdc-broken" in dag.tags
    for one in fleet.dags.values():
        serialize_dag(one)  # Airflow stores the DAGs of a file together
    return fail_message(dag)


# -- what a file may say ------------------------------------------------------------------------------------------------

WHOLE = {
    "name": "shop", "source": "memory", "changelog": "/lake", "conn_id": "db", "dag_id": "orders", "schedule": "@hourly",
    "properties": {"table.include.list": r"shop\.orders", "tombstones.on.delete": False},
    "changelog_options": {"client_kwargs": {"region_name": "eu"}},
    "location": "/lake/{table}", "tables": [{"tables": r"shop\.orders", "mode": "log"}],
    "tags": ["mine"], "start_date": "2025-01-31", "dagrun_timeout": "1d 12h", "max_active_runs": 1,
    "default_args": {"owner": "ann", "retries": 7, "retry_delay": 90},
    "group": {
        "target": "iceberg", "state_conn_id": "state", "storage_conn_id": "lake", "spark_conn_id": "spark", "poll_interval": 7,
        "wait_timeout": "2h", "run_for": "10m",
        "apply": {"threads": 2, "conf": {"spark.ui.enabled": False}, "driver_memory": "1g", "pool": "spark"},
    },
}  # fmt: skip


def yaml_of(values: Any) -> str:
    import yaml

    return str(yaml.safe_dump(values))


@pytest.mark.parametrize(("ending", "text"), [("yaml", yaml_of), ("yml", yaml_of), ("JSON", json.dumps)])
def test_a_file_makes_the_dag_that_the_same_arguments_make_in_code(tmp_path: Path, ending: str, text: Any) -> None:
    write(tmp_path, f"shop.{ending}", text(WHOLE))
    fleet = cdc_dags(tmp_path)
    assert fleet.broken == {}
    (dag,) = fleet.dags.values()
    coded = cdc_dag(
        ConnectorDefinition(**{name: WHOLE[name] for name in ConnectorPart.model_fields}),  # type: ignore[arg-type]
        conn_id="db",
        dag_id="orders",
        schedule="@hourly",
        location="/lake/{table}",
        tables=WHOLE["tables"],
        tags=["mine"],
        start_date=datetime(2025, 1, 31, tzinfo=UTC),
        dagrun_timeout=timedelta(hours=36),
        max_active_runs=1,
        default_args={"owner": "ann", "retries": 7, "retry_delay": timedelta(seconds=90)},
        group={**WHOLE["group"], "wait_timeout": timedelta(hours=2), "run_for": timedelta(minutes=10)},  # type: ignore[dict-item]
    )
    coded.doc_md = dag.doc_md
    assert serialize_dag(dag)["dag"] == {
        **serialize_dag(coded)["dag"],
        "fileloc": dag.fileloc,
    }
    assert f"Defined in `{tmp_path.name}/shop.{ending}`" in str(dag.doc_md)
    capture, apply, wait = (dag.get_task(name) for name in ("capture", "apply", "wait"))
    assert isinstance(capture, CaptureOperator)
    assert isinstance(apply, ApplyChangesOperator)
    assert isinstance(wait, ChangesAvailableSensor)
    assert (capture.run_for, capture.state_conn_id, wait.timeout, apply.threads, apply.pool) == (
        600, "state", 7200, 2, "spark",
    )  # fmt: skip


def test_what_a_file_does_not_say_is_as_it_is_in_code(folder: Path) -> None:
    write(folder, "quiet.yaml", f"{SHOP}schedule: null\n")
    write(folder, "fresh.yaml", f"{SHOP.replace('shop', 'fresh')}continuous: true\nlocation: /l\n")
    dags = cdc_dags(folder).dags
    assert dags["cdc_good"].schedule == "@continuous"
    assert dags["cdc_shop"].schedule is None
    assert dags["cdc_fresh"].schedule == timedelta(hours=1)
    assert sorted(dags["cdc_fresh"].task_ids) == ["apply", "capture"]
    assert dags["cdc_good"].get_task("capture").retries == 3


def parameters(function: Any, *without: str) -> set[str]:
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return {p.name for p in inspect.signature(function).parameters.values() if p.kind in kinds} - {"self", *without}


def test_files_know_every_argument_that_code_knows() -> None:
    """A new one has to be added to the form, or to be left out here by a decision."""
    dag = parameters(cdc_dag, "definition") | parameters(ConnectorDefinition)
    assert set(DagDefinition.model_fields) - set(DagPart.model_fields) == dag
    group = parameters(
        cdc_task_group,
        "definition",
        "conn_id",
        "location",
        "tables",
        "database",
        "sink",
        "on_spark",
        "submit",
        "continuous",
    )
    assert set(GroupPart.model_fields) == group
    own = parameters(
        ApplyChangesOperator,
        "definition",
        "location",
        "target",
        "tables",
        "conn_id",
        "state_conn_id",
        "storage_conn_id",
    )
    assert set(ApplyPart.model_fields) >= own


def test_airflow_knows_every_argument_that_files_know() -> None:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
    from airflow.sdk import BaseOperator

    assert set(DagPart.model_fields) <= parameters(DAG)
    assert set(TaskPart.model_fields) <= parameters(BaseOperator.__init__)
    known = parameters(ApplyChangesOperator) | parameters(SparkSubmitOperator.__init__)
    assert set(ApplyPart.model_fields) - set(TaskPart.model_fields) <= known


def test_defaults_hold_for_their_folder_and_below_and_the_nearest_win(folder: Path) -> None:
    (folder / "good.yaml").unlink()
    write(
        folder, "_defaults.yaml",
        "source: memory\nchangelog: /lake\nconn_id: db\nproperties: {snapshot.mode: initial, topic.delimiter: '-'}\ntags: [all]\n",
    )  # fmt: skip
    write(folder, "a.yaml", "name: a\n")
    write(folder, "finance/_defaults.json", '{"conn_id": "ledger", "properties": {"snapshot.mode": "no_data"}}')
    write(folder, "finance/b.yaml", "name: b\ntags: [b]\nproperties: {topic.prefix: eu}\n")
    write(folder, "finance/eu/c.yaml", "name: c\ntags: null\n")
    fleet = cdc_dags(folder)
    assert fleet.broken == {}
    tasks = {name: fleet.dags[f"cdc_{name}"].get_task("capture") for name in "abc"}
    assert {name: task.conn_id for name, task in tasks.items()} == {"a": "db", "b": "ledger", "c": "ledger"}  # type: ignore[attr-defined]
    assert tasks["a"].properties == {"snapshot.mode": "initial", "topic.delimiter": "-"}  # type: ignore[attr-defined]
    assert tasks["b"].properties == {"snapshot.mode": "no_data", "topic.delimiter": "-", "topic.prefix": "eu"}  # type: ignore[attr-defined]
    assert [fleet.dags[f"cdc_{name}"].tags for name in "abc"] == [{"all"}, {"b"}, {"cdc", "memory"}]


def test_callbacks_come_from_code_and_hold_for_broken_definitions_too(folder: Path) -> None:
    def call(context: Any) -> None: ...

    write(folder, "bad.yaml", "name: bad\n")
    write(folder, "own.yaml", f"{SHOP}default_args: {{retries: 9}}\n")
    dags = cdc_dags(folder, default_args={"on_failure_callback": call, "retries": 1}).dags
    for name in ("cdc_good", "cdc_shop", "cdc_bad"):
        assert [task.on_failure_callback for task in dags[name].tasks] == [[call]] * len(dags[name].tasks)
    retries = {name: dag.tasks[0].retries for name, dag in dags.items()}
    assert retries == {"cdc_good": 1, "cdc_shop": 9, "cdc_bad": 0}


def test_forms_take_the_connectors_of_a_fleet(folder: Path) -> None:
    write(folder, "shop.yaml", SHOP)
    assert lifecycle_dag(cdc_dags(folder).connectors).params.get_param("connector").schema["enum"] == ["good", "shop"]


# -- which files are read -----------------------------------------------------------------------------------------------


def test_hidden_files_and_other_endings_are_no_definitions_and_subfolders_are_read(folder: Path) -> None:
    for name in (
        ".hidden.yaml", ".git/config.yaml", "README.md", "shop.yaml.bak", "shop.yaml~", "notes.txt", "code.py", "no_ending",
    ):  # fmt: skip
        write(folder, name, "name: [never read")
    write(folder, "a/b/shop.YML", SHOP)
    fleet = cdc_dags(folder)
    assert (sorted(fleet.dags), fleet.broken) == (["cdc_good", "cdc_shop"], {})


def test_a_mounted_config_map_has_each_file_once(tmp_path: Path) -> None:
    """Kubernetes: files are links through a hidden folder, which changes as a whole."""
    write(tmp_path, "..2025_01_31/shop.yaml", SHOP)
    (tmp_path / "..data").symlink_to("..2025_01_31")
    (tmp_path / "shop.yaml").symlink_to("..data/shop.yaml")
    fleet = cdc_dags(tmp_path)
    assert (list(fleet.dags), fleet.broken) == (["cdc_shop"], {})


def test_a_link_to_a_folder_is_followed_but_never_in_a_circle(folder: Path, tmp_path: Path) -> None:
    write(tmp_path, "elsewhere/shop.yaml", SHOP)
    (folder / "more").symlink_to(tmp_path / "elsewhere")
    (folder / "again").symlink_to(folder)
    (tmp_path / "elsewhere" / "up").symlink_to(folder)
    fleet = cdc_dags(folder)
    assert (sorted(fleet.dags), fleet.broken) == (["cdc_good", "cdc_shop"], {})


def test_a_directory_without_definitions_has_no_dags(tmp_path: Path) -> None:
    assert cdc_dags(tmp_path).dags == {}


def test_a_directory_that_is_not_there_or_is_none_is_an_error_of_the_import(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        cdc_dags(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="Not a directory"):
        cdc_dags(write(tmp_path, "file.yaml", SHOP))
    with pytest.raises(ConfigError, match=r"not absolute[\s\S]*Path\(__file__\)"):
        cdc_dags("fleet")


# -- broken files -------------------------------------------------------------------------------------------------------

BROKEN: dict[str, tuple[str, str | bytes, str]] = {
    "empty": ("bad.yaml", "", "the file is empty"),
    "empty JSON": ("bad.json", "", "the file is empty"),
    "only blanks": ("bad.yaml", " \n\n", "the file is empty"),
    "only a comment": ("bad.yaml", "# to come\n", "the file is empty"),
    "null": ("bad.json", "null", "the file is empty"),
    "a list": ("bad.yaml", "- name: bad\n", "it contains a list"),
    "a JSON list": ("bad.json", "[1]", "it contains a list"),
    "a text": ("bad.yaml", "bad", "it contains a string"),
    "a number": ("bad.yaml", "5", "it contains a number"),
    "two documents": ("bad.yaml", f"{SHOP}---\n{SHOP}", "line 5: it is not YAML"),
    "a key twice": ("bad.yaml", f"{SHOP}name: two\n", "line 5: 'name' occurs twice, first in line 1"),
    "a key twice below": ("bad.yaml", f"{SHOP}properties:\n  a: 1\n  a: 2\n", "line 7: 'a' occurs twice"),
    "a key twice in JSON": ("bad.json", '{"name": "a", "name": "b"}', "'name' occurs twice"),
    "bad YAML": ("bad.yaml", "name: bad\nsource: [memory\n", "it is not YAML"),
    "a tab": ("bad.yaml", "name: bad\n\tsource: memory\n", "line 2: it is not YAML"),
    "bad JSON": ("bad.json", '{"name":\n "bad",}', "line 2: it is not JSON"),
    "JSON that is cut off": ("bad.json", '{"name": "bad"', "line 1: it is not JSON"),
    "not a number": ("bad.json", '{"name": NaN}', "NaN is not a valid number"),
    "infinity": ("bad.yaml", f"{SHOP}properties: {{a: .inf}}\n", "line 5: properties.a: inf is not a valid number"),
    "a huge number": ("bad.yaml", f"{SHOP}properties: {{a: 1{'0' * 30}}}\n", "properties.a: the number is too large"),
    "thousands of digits": ("bad.yaml", f"{SHOP}properties: {{a: {'9' * 5000}}}\n", "it is not YAML"),
    "a template without quotes": ("bad.yaml", "changelog: {{ var.value.lake }}\n", "line 1: a key cannot be mapping"),
    "a key that is a number": ("bad.yaml", f"{SHOP}properties: {{1: a}}\n", "line 5: the key 1 is not a string"),
    "a key that is true": ("bad.yaml", f"{SHOP}properties:\n  on: a\n", "line 6: the key on is not a string"),
    "an unknown alias": ("bad.yaml", "name: *nobody\n", "it is not YAML"),
    "a Python object": ("bad.yaml", "name: !!python/object/apply:os.getcwd []\n", "line 1: it is not YAML"),
    "a tag of one's own": ("bad.yaml", "name: !secret here\n", "line 1: it is not YAML"),
    "a wrong tag": ("bad.yaml", f"{SHOP}properties: {{a: !!int sesame}}\n", "does not match its tag"),
    "a set": ("bad.yaml", f"{SHOP}properties: {{a: !!set {{x, y}}}}\n", "line 5: properties.a: a set cannot be used"),
    "bytes": ("bad.yaml", f"{SHOP}properties: {{a: !!binary aGk=}}\n", "line 5: properties.a: a bytes cannot be used"),
    "itself": ("bad.yaml", f"{SHOP}properties: &a {{b: *a}}\n", "too deep"),
    "billions of values": (
        "bad.yaml", SHOP + "properties:\n  a0: &a0 [x]\n" + "".join(f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 20)),
        "line 5: it has more than 20,000 values",
    ),
    "too deep": ("bad.yaml", f"{SHOP}properties: {{a: {'[' * 60}{']' * 60}}}\n", "line 5: values are nested too deep"),
    "so deep that the reader dies": ("bad.yaml", "- " * (MOST_BYTES // 2 - 1), "too deep"),
    "so deep that the reader of JSON gives up": ("bad.json", "[" * (MOST_BYTES - 1), "too deep"),
    "too large": ("bad.yaml", f"{SHOP}# {'x' * MOST_BYTES}\n", "bytes, but a definition may have at most"),
    "Latin-1": ("bad.yaml", f"{SHOP}# Größe\n".encode("latin-1"), "line 5: the file is not UTF-8 (byte 0xf6)"),
    "UTF-16": ("bad.yaml", SHOP.encode("utf-16"), "line 1: the file is not UTF-8"),
    "a control character": ("bad.yaml", b"name: \x07\n", "it is not YAML"),
    "NUL": ("bad.yaml", f'{SHOP}description: "a\\0b"\n', "line 5: description: the string has a character"),
    "NUL in a key": ("bad.json", '{"properties": {"a\\u0000": 1}}', "a key has a character"),
    "half a character": ("bad.json", '{"name": "\\ud800"}', "name: the string has a character"),
    "an unknown key": ("bad.yaml", f"{SHOP}scheduel: null\n", "line 5: 'scheduel' is not known; did you mean 'schedule'?"),
    "an unknown key in the group": (
        "bad.yaml", f"{SHOP}group:\n  poll_intervall: 5\n", "line 6: group: 'poll_intervall' is not known; did you mean 'poll_interval'?",
    ),
    "an unknown argument of the apply": (
        "bad.yaml", f"{SHOP}group:\n  apply:\n    thread: 5\n", "line 7: group.apply: 'thread' is not known; did you mean 'threads'?",
    ),
    "an unknown key in JSON": ("bad.json", '{"name": "shop",\n"sorce": "memory"}', "line 2: 'sorce' is not known; did you mean 'source'?"),
    "a callback": ("bad.yaml", f"{SHOP}default_args: {{on_failure_callback: x}}\n", "'on_failure_callback' is not known"),
    "nothing that is required": ("bad.yaml", "name: bad\n", "conn_id is required"),
    "an unknown property": (
        "bad.yaml", f"{SHOP}properties:\n  a: 1\n  snapshot.mdoe: initial\n", "line 7: snapshot.mdoe: unknown property; did you mean snapshot.mode?",
    ),
    "a property that is not supported": (
        "bad.yaml", f"{SHOP}properties: {{transforms: route}}\n", "line 5: transforms: not supported: ",
    ),
    "an unknown source": ("bad.yaml", SHOP.replace("memory", "sybase"), "'sybase' is not a kind of source. Valid values are: db2"),
    "a wrong name": ("bad.yaml", SHOP.replace("shop", "my shop"), "'my shop' is not a valid connector name"),
    "a wrong id": ("bad.yaml", f"{SHOP}dag_id: a b\n", "line 5: dag_id may contain"),
    "a wrong schedule": ("bad.yaml", f"{SHOP}schedule: sometimes\n", "line 5: schedule: "),
    "a wrong target": ("bad.yaml", f"{SHOP}location: /l\ngroup: {{target: hudi}}\n", "hudi"),
    "a wrong rule": ("bad.yaml", f"{SHOP}location: /l\ntables: [{{tables: a, mode: histroy}}]\n", "histroy"),
    "what contradicts itself": ("bad.yaml", f"{SHOP}tables: [{{tables: a, mode: log}}]\n", "without location"),
    "a schedule that continuous has no use for": ("bad.yaml", f"{SHOP}schedule: '@daily'\ncontinuous: true\n", "its own schedule"),
    "a negative time": ("bad.yaml", f"{SHOP}group: {{run_for: -1}}\n", "line 5: group.run_for: must be more than 0"),
    "an endless time": ("bad.yaml", f"{SHOP}group: {{run_for: 99999999999999}}\n", "at most ten years"),
    "a wrong time": ("bad.yaml", f"{SHOP}group: {{run_for: soon}}\n", "a duration such as 90s, 10m"),
    "a wrong moment": ("bad.yaml", f"{SHOP}start_date: 2025-02-31\n", "line 5: start_date: must be a time"),
    "a secret property": ("bad.yaml", f"{SHOP.replace('memory', 'mariadb')}properties: {{database.password: sesame}}\n", "holds a secret: database.password"),
    "a secret option": ("bad.yaml", f"{SHOP}changelog_options: {{secret: sesame}}\n", r"holds a secret: changelog_options[secret]"),
    "a secret in the address": ("bad.yaml", SHOP.replace("/lake", "sftp://cdc:sesame@lake/log"), "holds a secret: changelog"),
    "a secret at a wrong place": ("bad.yaml", f"{SHOP}conn_id_: sesame\nretries: sesame\n", "'retries' is not known"),
    "a secret of a wrong type": ("bad.yaml", f"{SHOP}group: sesame\n", "line 5: group must be a mapping, but is a string"),
}  # fmt: skip


@pytest.mark.parametrize("which", BROKEN)
def test_a_broken_file_breaks_only_itself_and_its_dag_reports_what_is_wrong(folder: Path, which: str) -> None:
    name, content, expected = BROKEN[which]
    write(folder, name, content)
    text = only_broken(folder)
    assert expected in text
    assert "Safe:" in text
    assert "Repair:" in text
    assert "sesame" not in text


def test_an_unknown_key_is_reported_with_all_that_are_valid(folder: Path) -> None:
    write(folder, "bad.yaml", f"{SHOP}group: {{apply: {{x: 1}}}}\nx: 1\n")
    text = only_broken(folder)
    for part in (DagDefinition, ApplyPart):
        assert ", ".join(sorted(part.model_fields)) in text


def fields(part: type[Any], *above: str) -> Iterator[tuple[str, ...]]:
    inner = {"group": GroupPart, "apply": ApplyPart, "default_args": TaskPart}
    for name in part.model_fields:
        yield (*above, name)
        if name in inner:
            yield from fields(inner[name], *above, name)


STRANGE: list[Any] = [
    "x", "", "0 0 * * *", "1d", "x" * 300, "ä\n☃", -1, 0, 7, 2**40, 1.5, True, False, None, [], ["x"], [1], [[]], [None], {}, {"x": "y"}, {"x": 1},
    {"x": None}, {"x": {"y": []}}, {"": ""}, [{"x": 1}], [{"tables": "a"}], "2025-01-31", "{{ x }}", "a.md",
]  # fmt: skip


@pytest.mark.parametrize("path", fields(DagDefinition), ids=".".join)
def test_whatever_type_a_value_has_airflow_can_store_the_dag_or_the_file_is_broken(
    folder: Path, path: tuple[str, ...]
) -> None:
    """A DAG that fails when Airflow stores it would take the DAGs of all other files with it."""
    refused = 0
    for strange in STRANGE:
        values: dict[str, Any] = {
            "name": "shop",
            "source": "memory",
            "changelog": "/lake",
            "conn_id": "db",
            "location": "/l",
        }
        at = values
        for name in path[:-1]:
            at = at.setdefault(name, {})
        at[path[-1]] = strange
        write(folder, "odd.json", json.dumps(values))
        fleet = cdc_dags(folder)
        assert not is_broken(fleet.dags["cdc_good"])
        assert len(fleet.dags) == 2
        for dag in fleet.dags.values():
            dag.check_cycle()
            serialize_dag(dag)
        (error,) = fleet.broken.values() or (None,)
        if error is not None:
            assert str(error).startswith("The definition fleet/odd.json cannot be used:\n  ")
            refused += 1
    assert refused > 0
    assert refused < len(STRANGE) or path == ("source",)


@pytest.mark.parametrize("name", ["_defaults.yaml", "_defaults.json"])
def test_defaults_that_cannot_be_used_break_what_is_below_them_and_are_named(folder: Path, name: str) -> None:
    write(folder, f"team/{name}", "{")
    write(folder, "team/a.yaml", SHOP)
    write(folder, "team/deep/b.yaml", SHOP.replace("shop", "b"))
    fleet = cdc_dags(folder)
    assert sorted(fleet.broken) == ["fleet/team/a.yaml", "fleet/team/deep/b.yaml"]
    assert [name for name, dag in fleet.dags.items() if not is_broken(dag)] == ["cdc_good"]
    for error in fleet.broken.values():
        assert f"fleet/team/{name}, line" in str(error)


@pytest.mark.parametrize(
    ("defaults", "expected"),
    [
        ("dag_id: x\n", "fleet/team/_defaults.yaml, line 1: dag_id cannot be the same for all"),
        ("\nname: x\n", "fleet/team/_defaults.yaml, line 2: name cannot be the same for all"),
        (
            "group:\n  wiat: true\n",
            "fleet/team/_defaults.yaml, line 2: group: 'wiat' is not known; did you mean 'wait'?",
        ),
        ("tags: x\n", "fleet/team/_defaults.yaml, line 1: tags must be a list, but is a string"),
    ],
)
def test_what_is_wrong_in_defaults_is_reported_with_its_place_there(folder: Path, defaults: str, expected: str) -> None:
    write(folder, "team/_defaults.yaml", defaults)
    write(folder, "team/shop.yaml", SHOP)
    assert expected in only_broken(folder)


def test_two_files_with_defaults_in_one_folder_are_an_error(folder: Path) -> None:
    write(folder, "team/_defaults.yaml", "tags: [a]")
    write(folder, "team/_defaults.yml", "tags: [b]")
    write(folder, "team/shop.yaml", SHOP)
    assert "fleet/team/_defaults.yaml and fleet/team/_defaults.yml" in only_broken(folder)


# -- files that cannot be read ------------------------------------------------------------------------------------------


def test_a_link_to_nowhere_a_link_to_itself_and_a_pipe_are_reported_and_never_waited_for(folder: Path) -> None:
    (folder / "gone.yaml").symlink_to("nowhere.yaml")
    (folder / "loop.yaml").symlink_to("loop.yaml")
    os.mkfifo(folder / "pipe.yaml")
    fleet = cdc_dags(folder)
    assert "No such file" in str(fleet.broken["fleet/gone.yaml"])
    assert "symbolic links" in str(fleet.broken["fleet/loop.yaml"])
    assert "not a regular file" in str(fleet.broken["fleet/pipe.yaml"])
    assert sorted(fleet.dags) == ["cdc_gone", "cdc_good", "cdc_loop", "cdc_pipe"]


def test_what_may_not_be_read_is_reported() -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "fleet"
        write(folder, "good.yaml", GOOD)
        write(folder, "shut.yaml", SHOP).chmod(0)
        write(folder, "team/shop.yaml", SHOP).parent.chmod(0)
        folder.parent.chmod(0o755)
        cdc_dags(folder.parent)  # what is imported late, while everything may be read
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)
        try:
            fleet = cdc_dags(folder)
        finally:
            if root:
                os.seteuid(0)
            (folder / "team").chmod(0o755)
    assert sorted(fleet.dags) == ["cdc_good", "cdc_shut", "cdc_team"]
    assert sorted(fleet.broken) == ["fleet/shut.yaml", "fleet/team"]
    for error in fleet.broken.values():
        assert "Permission denied" in str(error)


# -- two of a kind ------------------------------------------------------------------------------------------------------


def test_two_files_with_one_connector_are_both_refused_and_each_names_both(folder: Path) -> None:
    write(folder, "a.yaml", f"{SHOP}dag_id: one\n")
    write(
        folder,
        "b/c.json",
        json.dumps({"name": "shop", "source": "memory", "changelog": "/l", "conn_id": "x", "dag_id": "two"}),
    )
    fleet = cdc_dags(folder)
    assert is_broken(fleet.dags["one"])
    assert is_broken(fleet.dags["two"])
    assert not is_broken(fleet.dags["cdc_good"])
    for name in ("one", "two"):
        assert "the connector shop is defined more than once: in fleet/a.yaml and fleet/b/c.json" in fail_message(
            fleet.dags[name]
        )


def test_two_files_with_one_dag_id_have_one_dag_that_names_both(folder: Path) -> None:
    write(folder, "a.yaml", f"{SHOP}dag_id: cdc_b\n")
    write(folder, "b.yaml", SHOP.replace("shop", "b"))
    fleet = cdc_dags(folder)
    assert sorted(fleet.dags) == ["cdc_b", "cdc_good"]
    assert "the DAG cdc_b is defined more than once: in fleet/a.yaml and fleet/b.yaml" in fail_message(
        fleet.dags["cdc_b"]
    )
    assert sorted(fleet.broken) == ["fleet/a.yaml", "fleet/b.yaml"]


def test_a_file_that_cannot_be_read_takes_the_dag_of_no_other_one(folder: Path) -> None:
    """Its own DAG is known by what it still says, or else by its name."""
    write(folder, "other.yaml", "name: good\nx: 1\n")
    for name in ("good.json", "good.yml", "x/good.yaml", "Go od!.yaml"):
        write(folder, name, "[")
    fleet = cdc_dags(folder)
    assert not is_broken(fleet.dags["cdc_good"])
    assert len(fleet.broken) == 5
    assert len(fleet.dags) == 6
    assert {"cdc_good", "cdc_good_broken", "cdc_Go_od_"} < fleet.dags.keys()


def test_a_definition_that_was_broken_keeps_its_dag_where_people_look_for_it(folder: Path) -> None:
    write(folder, "file.yaml", f"{SHOP}dag_id: orders\nscheduel: x\n")
    dag = cdc_dags(folder).dags["orders"]
    assert "scheduel" in fail_message(dag)
    assert "scheduel" in str(dag.doc_md)
    assert (dag.schedule, dag.catchup, dag.max_active_runs) == (timedelta(hours=1), False, 1)
    assert dag.dag_display_name == "orders (broken definition)"


# -- as Airflow takes it ------------------------------------------------------------------------------------------------

PROCESSED = """
import json, sys
from pathlib import Path
from airflow.dag_processing.processor import BundleDagBag, _serialize_dags
import structlog

folder = Path(sys.argv[1])
named = {"bundle_name": "test"} if sys.argv[3] == "named" else {}
bag = BundleDagBag(dag_folder=str(folder / sys.argv[2]), bundle_path=folder, load_op_links=False, **named)
stored, errors = _serialize_dags(bag, structlog.get_logger())
print("FOUND " + json.dumps({
    "dags": {dag.dag_id: sorted(task.task_id for task in dag.tasks) for dag in bag.dags.values()},
    "stored": sorted(one.dag_id for one in stored), "errors": {**bag.import_errors, **errors},
}))
"""


def process_dag_file(folder: Path, file: str) -> dict[str, Any]:
    """Return the DAGs and errors that Airflow's DAG processor finds in a Python file."""
    named = "named" if takes_bundle_name() else "nameless"
    result = subprocess.run(
        [sys.executable, "-c", PROCESSED, str(folder), file, named], capture_output=True, text=True, cwd=folder
    )
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("FOUND ")] or [result.stderr]
    return dict(json.loads(line.removeprefix("FOUND ")))


def test_airflow_finds_all_dags_of_a_fleet_and_no_half_ones_without_a_variable(folder: Path) -> None:
    write(folder, "half.yaml", f"{SHOP}tables: [{{tables: a, mode: log}}]\n")  # it fails when the DAG is begun
    write(folder, "bad.yaml", "[")
    write(folder.parent, "connectors.py", "from pathlib import Path\nfrom airflow_provider_cdc.dag import cdc_dags\n"
          'cdc_dags(Path(__file__).parent / "fleet")\n')  # fmt: skip
    found = process_dag_file(folder.parent, "connectors.py")
    assert found["dags"] == {"cdc_good": ["capture", "wait"], "cdc_shop": ["definition"], "cdc_bad": ["definition"]}
    assert found["stored"] == sorted(found["dags"])
    assert found["errors"] == {}


def test_an_error_of_the_import_takes_all_dags_of_a_file_with_it(folder: Path) -> None:
    """Why a broken definition is a DAG, and not raised when the others are made: if Airflow does better one day, so can we."""
    write(folder.parent, "connectors.py", "from pathlib import Path\nfrom airflow_provider_cdc.dag import cdc_dags\n"
          'cdc_dags(Path(__file__).parent / "fleet")\nraise ValueError("one is broken")\n')  # fmt: skip
    found = process_dag_file(folder.parent, "connectors.py")
    assert (found["dags"], list(found["errors"])) == ({}, ["connectors.py"])


def test_the_process_of_a_task_makes_only_its_own_dag_the_same_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, "shop.yaml", SHOP)
    write(folder, "bad.yaml", "[")
    whole = cdc_dags(folder).dags
    for dag_id in ("cdc_good", "cdc_shop", "cdc_bad"):
        monkeypatch.setenv(PARSING, dag_id)
        fleet = cdc_dags(folder)
        assert list(fleet.dags) == [dag_id]
        assert serialize_dag(fleet.dags[dag_id]) == serialize_dag(whole[dag_id])
        assert [one.name for one in fleet.connectors] == ["good", "shop"]
    monkeypatch.setenv(PARSING, "another")
    assert cdc_dags(folder).dags == {}


# -- what it costs ------------------------------------------------------------------------------------------------------


def many(folder: Path, number: int) -> None:
    folder.mkdir()
    write(folder, "_defaults.yaml", "source: mariadb\nchangelog: /lake\nlocation: /lake/{table}\n")
    for n in range(number):
        write(
            folder, f"c{n}.yaml",
            f"name: c{n}\nconn_id: db{n}\nproperties:\n  database.server.id: {n + 1}\n  table.include.list: shop\\.(orders|lines)\n",
        )  # fmt: skip


def parse_folder(folder: Path, number: int) -> tuple[Any, float]:
    """The DAGs of a folder, and the CPU seconds of this thread for each definition: the least of several times, without what a garbage collection of
    a process takes that has run thousands of tests."""
    cdc_dags(folder)
    times = []
    for _ in range(3):
        gc.collect()
        gc.disable()
        try:
            began = time.thread_time()
            fleet = cdc_dags(folder)
            times.append((time.thread_time() - began) / number)
        finally:
            gc.enable()
    return fleet, min(times)


def test_200_definitions_take_milliseconds_each_and_no_more_than_20_take(tmp_path: Path) -> None:
    """Measured: 2 to 3 ms of CPU time each; a busy machine gets three times that. What is quadratic or imports much takes more."""
    took = {}
    for number in (20, 200):
        many(tmp_path / str(number), number)
        fleet, took[number] = parse_folder(tmp_path / str(number), number)
        assert (len(fleet.dags), fleet.broken) == (number, {})
    assert took[200] < 0.01
    assert took[200] < 3 * took[20]


def test_200_broken_definitions_take_no_longer(tmp_path: Path) -> None:
    many(tmp_path / "f", 200)
    for n in range(200):
        write(tmp_path / "f", f"c{n}.yaml", f"name: same\nconn_id: db\nchangelog: /l{n}\n")
    fleet, took = parse_folder(tmp_path / "f", 200)
    assert (len(fleet.broken), len(fleet.dags)) == (200, 1)
    assert took < 0.01


def test_the_process_of_a_task_reads_the_other_definitions_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task of 200 connectors reads 200 files: measured 0.6 ms each."""
    many(tmp_path / "f", 200)
    monkeypatch.setenv(PARSING, "cdc_c7")
    fleet, took = parse_folder(tmp_path / "f", 200)
    assert list(fleet.dags) == ["cdc_c7"]
    assert took < 0.003


def test_levels_and_bytes_leave_room_for_what_people_write() -> None:
    assert MOST_LEVELS >= 16
    assert MOST_BYTES >= 100_000
