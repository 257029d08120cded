"""The provider in a real Airflow, installed from its wheel: commands, the example DAG with Spark, services and pages."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import column_lineage_dataset as lineage
from openlineage.client.facet_v2 import schema_dataset

from airflow_provider_cdc.sources import SOURCES
from airflow_provider_cdc.state import migrations
from airflow_provider_cdc.state.models import VERSION_TABLE, Base
from airflow_provider_cdc.state.state_store import StateStore
from airflow_provider_cdc.triggers.changes_applied import AppliedTrigger
from dev.airflow import LOOPBACK, Airflow, Services
from tests.support.patience import wait_until
from tests.support.processes.listening import ListeningWatch
from tests.system.conftest import LINEAGE, PASSWORD, PLAIN

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

DAG = "inventory_mariadb_to_delta"
WHERE = """
import importlib.metadata, json
from airflow_provider_cdc.operators.base.spark_job_operator import job_path
files = importlib.metadata.files("airflow-provider-cdc")
installed = {file.parts[0] for file in files if file.suffix == ".py"}  # the commands are in the folder of programs
print(json.dumps([job_path("apply_changes.py"), sorted(installed)]))
"""


# commands


def test_the_provider_is_there_from_its_wheel(airflow: Airflow) -> None:
    listed = json.loads(airflow.run("providers", "list", "-o", "json").stdout)
    (ours,) = [p for p in listed if p["package_name"] == "airflow-provider-cdc"]
    assert ours["version"] == "0.1.0"
    hooks = json.loads(airflow.run("providers", "hooks", "-o", "json").stdout)
    types = {h["connection_type"]: h["class"] for h in hooks if h["package_name"] == "airflow-provider-cdc"}
    assert set(types) == {*(f"cdc_{kind}" for kind in SOURCES), "cdc_state"}
    code = subprocess.run(
        [str(airflow.python), "-c", WHERE], env=airflow.environment, cwd="/", capture_output=True, text=True
    )
    script, installed = json.loads(code.stdout.splitlines()[-1])
    assert Path(script).is_relative_to(airflow.python.parents[1]), code
    assert Path(script).is_file()
    assert installed == ["airflow_provider_cdc"]


def test_db_migrate_has_made_our_tables_with_a_version_of_their_own(airflow: Airflow) -> None:
    newest = max(path.name[:4] for path in (Path(migrations.__path__[0]) / "versions").glob("0*.py"))
    assert {VERSION_TABLE, *Base.metadata.tables} <= airflow.tables()
    assert airflow.sql(f"SELECT version_num FROM {VERSION_TABLE}") == [(newest,)]
    airflow.run("db", "migrate")  # again: nothing to do, nothing lost
    assert airflow.sql(f"SELECT version_num FROM {VERSION_TABLE}") == [(newest,)]


def test_setup_makes_the_connection_once_and_does_not_show_or_replace_it(airflow: Airflow) -> None:
    assert "is up to date" in airflow.run("cdc", "setup").stdout
    url = "postgresql+psycopg://u:hunter2hunter2@127.0.0.1:1/x"
    made = airflow.run("cdc", "setup", "--conn-id", "other", "--url", url, status=1)
    assert "cannot be reached" in made.stdout
    assert "hunter2" not in made.stdout + made.stderr
    refused = airflow.run("cdc", "setup", "--conn-id", "other", status=1)
    assert "already exists and has different settings" in refused.stderr
    assert "was created" in airflow.run("cdc", "setup", "--conn-id", "other", "--replace").stdout
    ((stored,),) = airflow.sql("SELECT password FROM connection WHERE conn_id = 'cdc_state_default'")
    assert "sqlite" not in stored  # encrypted


def test_check_reports_before_the_first_run_whether_the_database_is_ready(airflow: Airflow) -> None:
    assert airflow.run("cdc", "check", "--conn-id", "inventory_mariadb").stdout.startswith("Ready for capture.\n")


# the example DAG


@pytest.fixture(scope="module")
def first_run(airflow: Airflow, services: Services, inventory: Any) -> ListeningWatch:
    """Let the services run the example DAG, Spark included; return a watch on who listened meanwhile."""
    with ListeningWatch(services.groups) as listening:
        services.until(lambda: services.request("GET", f"/api/v2/dags/{DAG}")[0] == 200, 120, f"{DAG} is parsed")
        services.json("PATCH", f"/api/v2/dags/{DAG}", {"is_paused": False})  # it is continuous: a run begins by itself
        services.until(lambda: ended_runs(services), 400, f"a run of {DAG} ends")
    services.json("PATCH", f"/api/v2/dags/{DAG}", {"is_paused": True})
    (state,) = ended_runs(services).values()
    logs = "\n".join(file.read_text() for file in (airflow.home / "logs" / f"dag_id={DAG}").rglob("*.log"))
    assert state == "success", logs[-5000:]
    assert "--conf spark.ui.enabled=false" in logs
    return listening


@pytest.fixture(scope="module")
def airflow_after_first_run(airflow: Airflow, first_run: ListeningWatch) -> Airflow:
    """After that run."""
    return airflow


def test_the_example_dag_makes_the_tables_equal(airflow_after_first_run: Airflow, inventory: Any) -> None:
    lake = airflow_after_first_run.home / "cdc" / "lake" / "inventory"
    assert delta_rows(lake / "customers") == sorted(inventory.sql("SELECT id, name, balance FROM inventory.customers"))
    assert delta_rows(lake / "products") == sorted(inventory.sql("SELECT id, name, weight FROM inventory.products"))
    assert len(delta_rows(lake / "orders")) == 1


def test_the_first_apply_leaves_an_archive_of_its_classes_for_the_next_ones(airflow_after_first_run: Airflow) -> None:
    (archive,) = (airflow_after_first_run.folder / "cache" / "airflow-provider-cdc").iterdir()
    assert archive.suffix == ".jsa"
    assert archive.stat().st_size > 50 << 20


def test_each_table_has_an_asset_event_with_rows_and_position(airflow_after_first_run: Airflow) -> None:
    found = {
        uri: json.loads(extra)
        for uri, extra in airflow_after_first_run.sql(
            "SELECT a.uri, e.extra FROM asset_event e JOIN asset a ON a.id = e.asset_id ORDER BY e.id"
        )
    }
    tables = ("customers", "products", "orders")
    assert set(found) == {f"cdc://inventory/inventory.inventory.{t}" for t in tables}
    event = found["cdc://inventory/inventory.inventory.customers"]
    assert event["rows"] == {"r": 2}
    assert event["position"]["file"].startswith("binlog.")
    assert event["last_batch"] >= 1


def test_tasks_leave_a_small_result_and_a_link_to_the_batch(airflow_after_first_run: Airflow) -> None:
    found = {
        (task, key): json.loads(value)
        for task, key, value in airflow_after_first_run.sql("SELECT task_id, key, value FROM xcom")
    }
    assert found[("capture", "return_value")]["events"] == 4
    assert found[("apply", "return_value")]["topics"]["inventory.inventory.customers"] == 2
    batch = found[("apply", "return_value")]["last_batch"]
    assert found[("capture", "_link_BatchLink")] == f"/plugin/cdc/connectors/inventory/batches/{batch}"
    assert found[("apply", "_link_BatchLink")] == f"/plugin/cdc/connectors/inventory/batches/{batch}"
    assert max(len(json.dumps(value)) for value in found.values()) < 2000


def test_openlineage_gets_the_origins_of_tables_and_columns(airflow_after_first_run: Airflow, inventory: Any) -> None:
    """By the real provider, from the tasks of a real run; its client's own classes read what it has sent."""
    wait_until(
        lambda: {"capture", "apply"} <= set(lineage_events(airflow_after_first_run)), "OpenLineage is told"
    )  # the task itself has ended before
    sent = lineage_events(airflow_after_first_run)
    names = ("customers", "orders", "products")
    capture, apply = (read(sent[task]) for task in ("capture", "apply"))
    server = f"mysql://{inventory.host}:{inventory.port}"
    assert {(d.namespace, d.name) for d in capture.inputs} == {(server, f"inventory.{name}") for name in names}
    topics = {
        ("file", f"{airflow_after_first_run.home}/cdc/changelog/inventory/inventory.inventory.{name}") for name in names
    }
    assert {(d.namespace, d.name) for d in capture.outputs} == topics == {(d.namespace, d.name) for d in apply.inputs}
    tables = {d.name: d for d in apply.outputs}
    assert set(tables) == {f"{airflow_after_first_run.home}/cdc/lake/inventory/{name}" for name in names}
    customers = tables[f"{airflow_after_first_run.home}/cdc/lake/inventory/customers"]
    assert [(f["name"], f["type"]) for f in customers.facets["schema"]["fields"]] == [
        ("id", "int"), ("name", "string"), ("balance", "decimal(10,2)"),
    ]  # fmt: skip
    (field,) = customers.facets["columnLineage"]["fields"]["balance"]["inputFields"]
    assert ((field["namespace"], field["name"]) in topics, field["field"]) == (True, "balance")
    statistics = customers.outputFacets["outputStatistics"]
    files = list(Path(customers.name).glob("*.parquet"))
    assert statistics["rowCount"] == 2
    assert 0 < statistics["size"] <= sum(file.stat().st_size for file in files)
    assert PASSWORD not in (airflow_after_first_run.folder / LINEAGE).read_text()


def test_the_commands_know_the_connector_after_its_run(airflow_after_first_run: Airflow) -> None:
    (listed,) = json.loads(airflow_after_first_run.run("cdc", "connectors", "-o", "json").stdout)
    assert (listed["connector"], listed["source"]) == ("inventory", "mariadb")
    printed = airflow_after_first_run.run(
        "cdc", "events", "inventory", "--topic", "inventory.inventory.products"
    ).stdout
    (record,) = [json.loads(line) for line in printed.splitlines()]
    assert record["key"] == {"id": 1}
    assert record["value"]["after"] == {"id": 1, "name": "hammer", "weight": 1.5}
    assert "Ready for capture." in airflow_after_first_run.run("cdc", "check", "inventory").stdout


def test_what_the_spark_job_reports_is_what_waiting_for_a_target_looks_at(airflow_after_first_run: Airflow) -> None:
    store = StateStore(f"sqlite:///{airflow_after_first_run.home}/airflow.db")
    try:
        last = store.list_batches("inventory", limit=1)[0]
        for point in ({"batch": last.batch}, {"seq": last.last_seq}, {}):
            event = AppliedTrigger("inventory", **point).poll_once(store).event
            assert event == {"batch": last.batch, "applied": last.batch, "target": "delta"}
    finally:
        store.close()


@pytest.mark.long
def test_the_example_of_maintenance_and_the_command_maintain_the_tables(
    airflow_after_first_run: Airflow, services: Services
) -> None:
    dag = "inventory_maintain_tables"

    def ended_runs() -> list[str]:
        runs = services.json("GET", f"/api/v2/dags/{dag}/dagRuns?limit=10")["dag_runs"]
        return [run["state"] for run in runs if run["state"] in ("success", "failed")]

    services.json("PATCH", f"/api/v2/dags/{dag}", {"is_paused": False})  # the run of yesterday begins by itself
    services.until(lambda: bool(ended_runs()), 300, f"a run of {dag} ends")
    services.json("PATCH", f"/api/v2/dags/{dag}", {"is_paused": True})
    logs = "\n".join(
        file.read_text() for file in (airflow_after_first_run.home / "logs" / f"dag_id={dag}").rglob("*.log")
    )
    assert ended_runs() == ["success"], logs[-5000:]
    assert "compact: of 1 files 1 are small" in logs
    ((value,),) = airflow_after_first_run.sql(f"SELECT value FROM xcom WHERE dag_id = '{dag}' AND key = 'return_value'")
    assert (found := json.loads(value))["tables"] == {}, found
    jars = airflow_after_first_run.environment["AIRFLOW_VAR_CDC_JARS"]
    done = json.loads(airflow_after_first_run.run("cdc", "maintain", "inventory", "--jars", jars, "-o", "json").stdout)
    tables = done["targets"][0]["tables"]
    assert [table["topic"].rpartition(".")[2] for table in tables] == ["customers", "orders", "products"]
    assert done["changelog"]["problem"] == ""
    assert done["changelog"]["targets"] == 1
    assert found["changelog"]["targets"] == 1
    refused = airflow_after_first_run.run("cdc", "maintain", "inventory", "--target", "iceberg", status=1)
    assert "No changes of inventory were applied to such a target" in refused.stderr


# the services


def test_everything_is_imported_without_an_error(services: Services) -> None:
    assert services.json("GET", "/api/v2/plugins/importErrors")["import_errors"] == []
    assert services.json("GET", "/api/v2/importErrors")["import_errors"] == []
    plugins = {plugin["name"] for plugin in services.json("GET", "/api/v2/plugins")["plugins"]}
    assert plugins == {"cdc", "OpenLineageProviderPlugin"}


def test_the_services_and_what_tasks_start_listen_for_this_machine_alone(
    services: Services, first_run: ListeningWatch
) -> None:
    assert (LOOPBACK, services.port) in first_run.seen
    assert "java" in first_run.programs  # Spark was among those that were looked at
    assert first_run.beyond() == []


def test_the_connection_form_knows_our_types(services: Services) -> None:
    types = {h["connection_type"]: h for h in services.json("GET", "/ui/connections/hook_meta")}
    form = types["cdc_mariadb"]
    assert form["standard_fields"]["login"]["title"] == "User"
    assert form["standard_fields"]["url_schema"]["hidden"]
    assert "database.ssl.mode" in form["extra_fields"]
    assert types["cdc_state"]["standard_fields"]["password"]["title"] == "SQLAlchemy URL"


def test_testing_a_connection_in_the_form_checks_the_prerequisites(services: Services, inventory: Any) -> None:
    body = {"connection_id": "new", "conn_type": "cdc_mariadb", "host": inventory.host, "port": inventory.port}
    good = {**body, "login": "reader", "password": PASSWORD, "extra": json.dumps(PLAIN)}
    assert services.json("POST", "/api/v2/connections/test", good) == {"status": True, "message": "Ready for capture."}
    bad = services.json("POST", "/api/v2/connections/test", {**good, "password": "wrong-one"})
    assert bad["status"] is False
    assert "Access denied" in bad["message"]


def test_pages_need_a_login_and_show_no_secret(
    services: Services, airflow_after_first_run: Airflow, inventory: Any
) -> None:
    *_, snapshot = json.loads(airflow_after_first_run.run("cdc", "batches", "inventory", "-o", "json").stdout)
    batch = snapshot["batch"]
    api = "/cdc/api/v1/connectors"
    parts = (
        "tables",
        "signals",
        "events",
        "batches",
        f"batches/{batch}",
        "offsets",
        "schema-changes",
        "configuration",
        "metrics",
    )
    for page in (api, "/cdc/metrics", f"{api}/inventory", *(f"{api}/inventory/{part}" for part in parts)):
        assert services.request("GET", page, login=False)[0] == 401
        status, text = services.request("GET", page)
        assert status == 200, text
        assert PASSWORD not in text
    (line,) = [one for one in services.json("GET", api)["connectors"] if one["connector"] == "inventory"]
    assert (line["connector"], line["state"], line["alerts"]) == ("inventory", "unassigned", [])
    assert line["next_run"] is not None  # Airflow itself was asked about the DAG
    assert line["freshness"]["where"] == "tables"
    tables = {one["table"]: one for one in services.json("GET", f"{api}/inventory/tables")["tables"]}
    assert (tables["inventory.products"]["events"], tables["inventory.products"]["key"]) == (1, ["id"])
    assert [one["target"] for one in tables["inventory.products"]["targets"]] == ["delta"]
    assert services.request("GET", f"{api}/nope")[0] == 404


def test_a_change_wakes_the_waiting_dag(services: Services, airflow_after_first_run: Airflow, inventory: Any) -> None:
    services.json("PATCH", f"/api/v2/dags/{DAG}", {"is_paused": False})
    services.until(lambda: task(services, DAG, "wait") == "deferred", 120, "the sensor is deferred")
    inventory.sql("INSERT INTO inventory.customers (name) VALUES ('Cyd')")
    # the run continues to capture it; what follows it is another test's
    services.until(lambda: task(services, DAG, "capture") == "success", 120, "the change is captured")
    services.json("PATCH", f"/api/v2/dags/{DAG}", {"is_paused": True})
    printed = airflow_after_first_run.run(
        "cdc", "events", "inventory", "--topic", "inventory.inventory.customers"
    ).stdout
    last = json.loads(printed.splitlines()[-1])
    assert (last["value"]["op"], last["value"]["after"]["name"]) == ("c", "Cyd")


def test_a_capture_that_is_ended_from_the_ui_commits_and_frees_its_lease(
    services: Services, airflow_after_first_run: Airflow, inventory: Any
) -> None:
    services.json("PATCH", "/api/v2/dags/long_capture", {"is_paused": False})
    services.json("POST", "/api/v2/dags/long_capture/dagRuns", {"logical_date": None})
    services.until(lambda: batches(airflow_after_first_run, "long") == 1, 120, "the snapshot is committed")
    services.until(lambda: reading(inventory), 60, "the log is being read")
    # Airflow kills a task 5 s after it was asked to end. A new installation compiles the decoding at its first event,
    # which takes longer: a full batch shows that this is over
    inventory.sql("INSERT INTO inventory.orders (id) VALUES (2), (3)")
    services.until(lambda: batches(airflow_after_first_run, "long") == 2, 120, "a full batch is committed")
    inventory.sql("INSERT INTO inventory.orders (id) VALUES (4)")  # its batch is not due for a minute
    run = services.json("GET", "/api/v2/dags/long_capture/dagRuns")["dag_runs"][0]["dag_run_id"]
    path = f"/api/v2/dags/long_capture/dagRuns/{run}/taskInstances/capture"
    services.json("PATCH", path, {"new_state": "failed"})
    services.until(
        lambda: airflow_after_first_run.sql("SELECT owner FROM cdc_lease WHERE connector = 'long'") == [(None,)],
        60,
        "the lease is free",
    )
    assert batches(airflow_after_first_run, "long") == 3


def test_links_of_task_instances_lead_to_their_batch(services: Services, airflow_after_first_run: Airflow) -> None:
    (run,) = ended_runs(services)
    links = services.json("GET", f"/api/v2/dags/{DAG}/dagRuns/{run}/taskInstances/apply/links")["extra_links"]
    assert services.request("GET", links["CDC batch"])[0] == 200


def test_the_password_of_the_source_is_nowhere(services: Services, airflow_after_first_run: Airflow) -> None:
    """Not in logs, the metadata DB, the change log or the tables; the connection itself is in the environment."""
    looked_at = 0
    for file in [services.log, *airflow_after_first_run.folder.joinpath("home").rglob("*")]:
        if file.is_file():
            looked_at += 1
            assert PASSWORD.encode() not in file.read_bytes(), file
    assert looked_at > 30


def lineage_events(airflow: Airflow) -> dict[str, dict[str, Any]]:
    """Task of the example DAG → the newest event of OpenLineage about its end."""
    sent = [json.loads(line) for line in (airflow.folder / LINEAGE).read_text().splitlines()]
    ends = [event for event in sent if event["eventType"] == "COMPLETE" and event["job"]["name"].startswith(f"{DAG}.")]
    return {event["job"]["name"].rpartition(".")[2]: event for event in ends}


def read(event: dict[str, Any]) -> RunEvent:
    """An event of OpenLineage with the classes of its client, which refuse what the specification does not have."""
    run_event = RunEvent(
        eventTime=event["eventTime"], producer=event["producer"], run=Run(**event["run"]), job=Job(**event["job"]),
        eventType=RunState(event["eventType"]), inputs=[InputDataset(**d) for d in event["inputs"]],
        outputs=[OutputDataset(**d) for d in event["outputs"]],
    )  # fmt: skip
    for found in run_event.outputs or []:
        schema_dataset.SchemaDatasetFacet(**facet(found.facets["schema"]))
        for column in lineage.ColumnLineageDatasetFacet(**facet(found.facets["columnLineage"])).fields.values():
            for origin in lineage.Fields(**column).inputFields:
                known = [lineage.Transformation(**t) for t in lineage.InputField(**origin).transformations or []]
                assert [t.type for t in known] == ["DIRECT"]
    return run_event


def facet(found: dict[str, Any]) -> dict[str, Any]:
    """A facet without what its class adds by itself."""
    assert found["_schemaURL"].startswith("https://openlineage.io/spec/facets/")
    return {name: value for name, value in found.items() if not name.startswith("_")}


def reading(server: Any) -> bool:
    """Check whether someone reads the log of a server, up to its end."""
    return any("Binlog Dump" in str(row) for row in server.sql("SHOW PROCESSLIST"))


def batches(airflow: Airflow, connector: str) -> int:
    ((count,),) = airflow.sql("SELECT count(*) FROM cdc_batch WHERE connector = ?", connector)
    return int(count)


def ended_runs(services: Services) -> dict[str, str]:
    """Runs of the example DAG that have ended, with their states."""
    runs = services.json("GET", f"/api/v2/dags/{DAG}/dagRuns?limit=100")["dag_runs"]
    return {run["dag_run_id"]: run["state"] for run in runs if run["state"] in ("success", "failed")}


def task(services: Services, dag: str, task_id: str) -> str | None:
    """State of a task in the newest scheduled run."""
    runs = services.json("GET", f"/api/v2/dags/{dag}/dagRuns?order_by=-run_after&limit=1&run_type=scheduled")[
        "dag_runs"
    ]
    if not runs:
        return None
    found = services.json("GET", f"/api/v2/dags/{dag}/dagRuns/{runs[0]['dag_run_id']}/taskInstances/{task_id}")
    return str(found["state"])


def delta_rows(table: Path) -> list[tuple[Any, ...]]:
    """Rows of a Delta table without deletion vectors, by its log."""
    import pyarrow.parquet as pq

    files: set[str] = set()
    names: dict[str, str] = {}
    for entry in sorted((table / "_delta_log").glob("*.json")):
        for line in entry.read_text().splitlines():
            action = json.loads(line)
            if "metaData" in action:
                fields = json.loads(action["metaData"]["schemaString"])["fields"]
                names = {f["metadata"].get("delta.columnMapping.physicalName", f["name"]): f["name"] for f in fields}
            if "add" in action:
                assert "deletionVector" not in action["add"]
                files.add(action["add"]["path"])
            if "remove" in action:
                files.discard(action["remove"]["path"])
    rows: list[tuple[Any, ...]] = []
    for file in files:
        content = pq.read_table(table / file, partitioning=None)
        assert set(names.values()) == {names[n] for n in content.column_names if n in names}
        rows += [tuple(row.values()) for row in content.to_pylist()]
    return sorted(rows)
