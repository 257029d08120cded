"""All arguments of operators, sensors and DAG functions, with all kinds of values that people give to them.

Each is used, or refused with an error of the project that names the argument: when the DAG is parsed, or when templates are rendered.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import pkgutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator

import airflow_provider_cdc.operators
import airflow_provider_cdc.sensors
from airflow_provider_cdc import dag as dag_functions
from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.dag import GroupedConnector
from airflow_provider_cdc.operators.apply_connectors import ApplyConnectorsOperator
from airflow_provider_cdc.operators.broken_definition import BrokenDefinitionOperator
from airflow_provider_cdc.operators.capture import CaptureOperator
from tests.support.airflow.airflow_connector import ShopConnector, context, make_shop
from tests.support.airflow.airflow_versions import AirflowException, AirflowTaskTimeout, TaskDeferred, serialize_dag

SHOP = ConnectorDefinition("shop", "memory", "/lake", {"table.include.list": r"inventory\.(orders|lines)"})
GIVEN: dict[str, Any] = {
    "definition": SHOP, "connectors": [GroupedConnector(definition=SHOP, conn_id="shop")], "connector": "shop", "conn_id": "shop",
    "source_conn_id": "shop", "database_conn_id": "warehouse", "location": "/l/{table}", "tables": ["inventory.orders"],
    "action": "status", "type": "pause-snapshot", "procedure": "x", "table": "inventory.orders", "work": "verify",
}  # fmt: skip
"""Values of arguments that have no default."""
FIXED = {"definition", "connectors", "tables_of", "dag_id", "schedule", "group_id", "directory", "default_args"}
"""Objects of the project, and arguments of Airflow."""
VALUES: dict[str, Any] = {
    "text": "a", "number-text": "7", "empty": "", "flag-text": "true", "number": 7, "zero": 0, "negative": -1, "fraction": 0.5,
    "true": True, "none": None, "time": timedelta(seconds=7), "no-time": timedelta(0), "list": ["inventory.orders"], "nothing": [],
    "mapping": {"a": "b"}, "mixed-list": [1, None], "object": object(),
    "template-text": "{{ params.text }}", "template-number": "{{ params.number }}", "template-none": "{{ params.none }}",
    "template-list": "{{ params.list }}", "template-true": "{{ params.true }}",
}  # fmt: skip
PARAMS = {"text": "a", "number": 7, "none": None, "list": ["inventory.orders"], "true": True}


def find_classes() -> Iterator[type[BaseOperator]]:
    for package in (airflow_provider_cdc.operators, airflow_provider_cdc.sensors):
        for found in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"{package.__name__}.{found.name}")
            for one in vars(module).values():
                is_operator = inspect.isclass(one) and issubclass(one, BaseOperator) and not inspect.isabstract(one)
                if is_operator and one.__module__ == module.__name__ and one is not BrokenDefinitionOperator:
                    yield one


def parameters_of(made: Any) -> dict[str, inspect.Parameter]:
    """The project's parameters of a class, or of a function."""
    if not inspect.isclass(made):
        return {n: p for n, p in inspect.signature(made).parameters.items() if p.kind is not p.VAR_KEYWORD}
    found: dict[str, inspect.Parameter] = {}
    fixed = {"AdHocSnapshotOperator": {"type"}, "ApplyToDatabaseOnSparkOperator": {"target"}}.get(made.__name__, set())
    for base in reversed(made.__mro__):
        if base.__module__.startswith("airflow_provider_cdc") and "__init__" in base.__dict__:
            found |= inspect.signature(inspect.unwrap(base.__dict__["__init__"])).parameters
    return {n: p for n, p in found.items() if n not in {"self", *fixed} and p.kind is not p.VAR_KEYWORD}


def required(made: Any) -> dict[str, Any]:
    given = {name: GIVEN[name] for name, p in parameters_of(made).items() if p.default is p.empty and name in GIVEN}
    if made is ApplyConnectorsOperator:
        given |= {"connectors": [SHOP], "location": "/l/{table}"}
    return given


def names_it(error: Exception, name: str, value: Any) -> bool:
    """Check whether an error names an argument, or its value. Of ``source_conn_id``, the field is ``conn_id``."""
    text = str(error).replace("_", " ")
    return any(one.replace("_", " ") in text for one in (name, name.removeprefix("source_"), repr(value)))


CLASSES = {one.__name__: one for one in find_classes()}
CASES = [
    pytest.param(one, name, kind, id=f"{one.__name__}-{name}-{kind}")
    for one in CLASSES.values()
    for name in parameters_of(one)
    if name not in FIXED
    for kind in VALUES
]
every_case = pytest.mark.parametrize(("made", "name", "kind"), CASES)


def build(made: Any, name: str, value: Any, *, native: bool = False) -> BaseOperator | None:
    """Build a task, or find it refused by an error that names the argument."""
    with DAG("d", render_template_as_native_obj=native) as dag:
        try:
            task: BaseOperator = made(**{"task_id": "t", **required(made), name: value})
        except ConfigError as e:
            if not names_it(e, name, value):
                raise AssertionError(f"{name} is not named") from e
            return None
    serialize_dag(dag)
    return task


@pytest.mark.sampled(300)
@every_case
def test_an_argument_is_used_or_refused_by_name_when_the_dag_is_parsed(made: Any, name: str, kind: str) -> None:
    """AF26"""
    if kind == "object" and name in made.template_fields:
        pytest.skip("Airflow itself refuses objects among templates when it serializes the DAG, or shows their text")
    build(made, name, VALUES[kind])


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    shop_connector = make_shop(monkeypatch, tmp_path, "matrix")
    shop_connector.order(1)
    CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop").execute(context())
    monkeypatch.setitem(GIVEN, "definition", shop_connector.definition)
    monkeypatch.setitem(GIVEN, "connectors", [GroupedConnector(definition=shop_connector.definition, conn_id="shop")])
    yield shop_connector
    shop_connector.store.close()


IN_PROCESS = [
    case
    for case in CASES
    if not any(
        part in str(case.id) for part in ("ApplyC", "OnSpark", "ApplyToD", "Maintain", "Rebuild", "WorkOn", "Verify")
    )
    and not (case.values[1] in ("lease_wait", "run_for", "wait_for_end") and case.values[2] in ("time", "number"))
]
"""Tasks without a Spark and without a target; those that wait for the argument's time are in other tests."""


@pytest.mark.sampled(300)
@pytest.mark.parametrize("native", [False, True], ids=["plain", "native"])
@pytest.mark.parametrize(("made", "name", "kind"), IN_PROCESS)
def test_a_task_that_is_parsed_ends_waits_or_fails_by_an_error_of_the_project(
    shop_connector: ShopConnector, made: Any, name: str, kind: str, *, native: bool
) -> None:
    task = build(made, name, VALUES[kind], native=native)
    if task is None or kind == "object":
        return
    given = context(params=PARAMS, dag_run=SimpleNamespace(run_type="manual", start_date=None))
    try:
        render(task, given)
        task.execute(given)
    except TaskDeferred as deferred:
        path, arguments = deferred.trigger.serialize()  # type: ignore[union-attr]
        module, _, trigger = path.rpartition(".")
        again = getattr(importlib.import_module(module), trigger)(**json.loads(json.dumps(arguments)))
        assert again.serialize() == (path, arguments)
    except (AirflowException, AirflowTaskTimeout):
        pass  # any other error is one of Python, and no one knows from it what to change


@pytest.mark.sampled(300)
@pytest.mark.parametrize("native", [False, True], ids=["plain", "native"])
@every_case
def test_a_rendered_argument_is_used_or_refused_before_the_task_executes(
    made: Any, name: str, kind: str, *, native: bool
) -> None:
    task = build(made, name, VALUES[kind], native=native) if kind.startswith("template") else None
    if task is None:
        return
    try:
        render(task, context(params=PARAMS))
    except AirflowException as e:
        if not names_it(e, name, VALUES[kind]):
            raise AssertionError(f"{name} is not named") from e
        return
    rendered = getattr(task, name, None)
    if isinstance(rendered, int) and not isinstance(rendered, bool):
        pytest.fail(f"{name} is the number {rendered}")


def render(task: BaseOperator, given: Any) -> None:
    """Do with a task what Airflow does before it executes."""
    task.render_template_fields(given)
    task.pre_execute(given)


@pytest.mark.parametrize("name", CLASSES)
def test_a_mapped_task_has_what_it_is_expanded_with(name: str) -> None:
    made = CLASSES[name]
    fixed = required(made)
    varied = next(n for n in ("connector", "state_conn_id") if n in parameters_of(made))
    fixed.pop(varied, None)
    with DAG("mapped") as dag:
        mapped = made.partial(task_id="t", **fixed).expand(**{varied: ["shop", "{{ params.text }}"]})
    serialize_dag(dag)
    task = mapped.unmap({varied: "{{ params.text }}"})
    task._do_render_template_fields(
        task, mapped.template_fields, context(params=PARAMS), mapped.get_template_env(), set()
    )
    task.pre_execute(context(params=PARAMS))
    assert getattr(task, varied) == "a"


FUNCTIONS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "cdc_dag": (dag_functions.cdc_dag, {"definition": SHOP, "conn_id": "shop"}),
    "cdc_group_dag": (dag_functions.cdc_group_dag, {"connectors": GIVEN["connectors"]}),
    "apply_dag": (dag_functions.apply_dag, {"connectors": [SHOP], "location": "/l"}),
    "ad_hoc_snapshot_dag": (dag_functions.ad_hoc_snapshot_dag, {"connectors": [SHOP]}),
    "signal_dag": (dag_functions.signal_dag, {"connectors": [SHOP]}),
    "lifecycle_dag": (dag_functions.lifecycle_dag, {"connectors": [SHOP]}),
    "tables_dag": (dag_functions.tables_dag, {"connectors": [SHOP]}),
    "alerts_dag": (dag_functions.alerts_dag, {}),
    "maintenance_dag": (dag_functions.maintenance_dag, {"connectors": [SHOP], "location": "/l"}),
    "watched_table_asset": (dag_functions.watched_table_asset, {"connector": SHOP}),
    "cdc_task_group": (dag_functions.cdc_task_group, {"definition": SHOP, "conn_id": "shop", "location": "/l"}),
}


@pytest.mark.sampled(300)
@pytest.mark.parametrize(
    ("function", "name", "kind"),
    [(f, n, k) for f, (made, _) in FUNCTIONS.items() for n in parameters_of(made) if n not in FIXED for k in VALUES],
)
def test_an_argument_of_a_dag_is_used_or_refused_by_name(function: str, name: str, kind: str) -> None:
    """AF26"""
    make, given = FUNCTIONS[function]
    around = DAG("around") if function == "cdc_task_group" else contextlib.nullcontext()
    with around:
        try:
            made = make(**{**given, name: VALUES[kind]})
        except ConfigError as e:
            if not names_it(e, name, VALUES[kind]):
                raise AssertionError(f"{name} is not named") from e
            return
        except TypeError:
            if kind == "mapping" and name in ("apply", "capture", "group", "maintain"):  # it has no argument "a"
                return
            raise
    if isinstance(made, DAG) and kind != "object":
        serialize_dag(made)
