"""The specifications that Dataproc and the Spark operator of Kubernetes get, and what their answers mean.

The hooks are stand-ins: they record requests, and answer as the clients of the two services do. No cluster runs anything here.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.services.submit import PLATFORMS, build_platform, load_platform
from airflow_provider_cdc.services.submit.job_runner import is_transient, submit_job
from airflow_provider_cdc.services.submit.platform import Platform
from airflow_provider_cdc.services.submit.spark_job import SparkJob

JOB = SparkJob(
    name="cdc-apply-Shop.eu", script="/x/apply_changes.py", arguments=("--threads", "2"), packages=("a:b:2",), jars=("s3://j.jar",),
    conf={"spark.x": "1"}, environment={"LEVEL": "info"}, token="t" * 32,
)  # fmt: skip
SECRET_JOB = SparkJob(**{**JOB.__dict__, "secret_environment": {"CDC_STORAGE_OPTIONS": '{"key": "sesame"}'}})


class AlreadyExists(Exception):
    code = 409


class Conflict(Exception):
    status = 409


class NotFound(Exception):
    status = 404


class Hook:
    """A stand-in of the hooks: each method answers what the test has set."""

    project_id = "project-1"

    def __init__(self, **answers: Any) -> None:
        self.answers, self.calls = answers, list[tuple[str, dict[str, Any]]]()

    def __getattr__(self, name: str) -> Any:
        def call(*values: Any, **given: Any) -> Any:
            self.calls.append((name, {**given, **({"values": values} if values else {})}))
            answer = self.answers.get(name)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


def build(monkeypatch: pytest.MonkeyPatch, hook: Hook, platform: str, **parameters: Any) -> Platform:
    monkeypatch.setattr(load_platform(platform), "_hook", lambda _: hook)
    built = build_platform({"platform": platform, "application_uri": "gs://lake/cdc", **parameters})
    assert built is not None
    return built


def test_a_batch_of_dataproc(monkeypatch: pytest.MonkeyPatch) -> None:
    state = SimpleNamespace(name="RUNNING")
    hook = Hook(get_batch=SimpleNamespace(state=state, state_message="", operation="operations/7"))
    hook.answers["get_batch_client"] = client = Hook()
    platform = build(monkeypatch, hook, "dataproc-batch", region="eu", version="3.0")
    run = submit_job(platform, JOB)
    (_, given), *_ = hook.calls
    assert given["project_id"] == "project-1"
    assert given["batch_id"] == run == f"cdc-{JOB.token}"
    assert given["batch"] == {
        "pyspark_batch": {
            "main_python_file_uri": "gs://lake/cdc/apply_changes.py", "args": ["--threads", "2"],
            "python_file_uris": ["gs://lake/cdc/airflow_provider_cdc.zip"], "jar_file_uris": ["s3://j.jar"], "file_uris": [],
        },
        "runtime_config": {
            "version": "3.0",
            "properties": {
                "spark.jars.packages": "a:b:2", "spark.dataproc.driverEnv.LEVEL": "info", "spark.executorEnv.LEVEL": "info",
                "spark.x": "1",
            },
        },
        "labels": {"airflow": "cdc"},
    }  # fmt: skip
    stages = {
        "PENDING": "pending",
        "RUNNING": "running",
        "SUCCEEDED": "succeeded",
        "FAILED": "failed",
        "CANCELLED": "cancelled",
    }
    for state.name, stage in stages.items():
        assert platform.inspect(run).stage == stage
    platform.cancel(run)
    assert client.calls == [("cancel_operation", {"values": ({"name": "operations/7"},)})]
    hook.answers["create_batch"] = AlreadyExists("batch exists")  # an answer was lost
    assert submit_job(platform, JOB) == run


def test_a_job_of_dataproc(monkeypatch: pytest.MonkeyPatch) -> None:
    status = SimpleNamespace(state=SimpleNamespace(name="PENDING"), details="no quota")
    hook = Hook(get_job=SimpleNamespace(status=status))
    platform = build(monkeypatch, hook, "dataproc-job", region="eu", cluster_name="c", project_id="mine")
    run = submit_job(platform, JOB)
    (_, given), *_ = hook.calls
    assert (given["project_id"], given["region"]) == ("mine", "eu")
    job = given["job"]
    assert (job["reference"]["job_id"], job["placement"]) == (run, {"cluster_name": "c"})
    assert job["pyspark_job"]["main_python_file_uri"] == "gs://lake/cdc/apply_changes.py"
    assert job["pyspark_job"]["properties"]["spark.yarn.appMasterEnv.LEVEL"] == "info"
    stages = {
        "PENDING": "pending",
        "RUNNING": "running",
        "DONE": "succeeded",
        "ERROR": "failed",
        "CANCELLED": "cancelled",
    }
    for status.state.name, stage in stages.items():
        assert platform.inspect(run).stage == stage
    assert platform.inspect(run).message == "no quota"
    platform.cancel(run)
    assert hook.calls[-1] == ("cancel_job", {"job_id": run, "project_id": "mine", "region": "eu"})


def test_dataproc_knows_the_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    dataproc = pytest.importorskip("google.cloud.dataproc_v1")
    hook = Hook()
    submit_job(build(monkeypatch, hook, "dataproc-batch", region="eu", version="3.0"), JOB)
    submit_job(build(monkeypatch, hook, "dataproc-job", region="eu", cluster_name="c"), JOB)
    batch, job = (given for _, given in hook.calls)
    assert dataproc.Batch(batch["batch"]).pyspark_batch.args == ["--threads", "2"]
    assert dataproc.Job(job["job"]).pyspark_job.args == ["--threads", "2"]


def test_an_application_of_kubernetes(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = Hook(get_custom_object={})
    platform = build(
        monkeypatch, hook, "spark-kubernetes", namespace="spark", image="registry/spark:4.1", application_uri="local:///opt/cdc",
        wheel_uri="installed", secret_environment={"CDC_STORAGE_OPTIONS": "cdc:storage"},
        spec={"driver": {"cores": 2}, "executor": {"instances": 4}, "sparkVersion": "4.1.3"},
    )  # fmt: skip
    run = submit_job(platform, SECRET_JOB)
    (name, given), *_ = hook.calls
    assert (name, given["namespace"], given["plural"]) == ("create_custom_object", "spark", "sparkapplications")
    body = given["body"]
    assert "sesame" not in str(body)
    assert (body["apiVersion"], body["kind"]) == ("sparkoperator.k8s.io/v1beta2", "SparkApplication")
    assert body["metadata"] == {"name": run, "namespace": "spark"}
    assert run == "cdc-apply-shop-eu-tttttttttttttttt"
    spec = body["spec"]
    assert spec["mainApplicationFile"] == "local:///opt/cdc/apply_changes.py"
    assert spec["arguments"] == ["--threads", "2"]
    assert spec["deps"] == {"jars": ["s3://j.jar"], "packages": ["a:b:2"]}
    assert spec["driver"] == {"serviceAccount": "spark", "cores": 2}
    assert spec["sparkConf"] == {
        "spark.kubernetes.driverEnv.LEVEL": "info", "spark.executorEnv.LEVEL": "info",
        "spark.kubernetes.driver.secretKeyRef.CDC_STORAGE_OPTIONS": "cdc:storage", "spark.x": "1",
    }  # fmt: skip
    states = {
        "": "pending",
        "RUNNING": "running",
        "COMPLETED": "succeeded",
        "FAILED": "failed",
        "SUBMISSION_FAILED": "failed",
    }
    for state, stage in states.items():
        hook.answers["get_custom_object"] = {"status": {"applicationState": {"state": state, "errorMessage": "why"}}}
        assert platform.inspect(run).stage == stage
    hook.answers["create_custom_object"] = Conflict("exists")  # an answer was lost
    assert submit_job(platform, SECRET_JOB) == run
    hook.answers["delete_custom_object"] = NotFound("gone")
    platform.cancel(run)


def test_a_running_cluster_of_databricks_takes_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    platform: Any = build(monkeypatch, Hook(), "databricks", existing_cluster_id="c-1")
    with pytest.raises(ConfigError, match=r"takes no settings from a job: spark\.x, LEVEL"):
        platform.build_run(JOB)
    plain = SparkJob(**{**JOB.__dict__, "conf": {}, "environment": {}, "packages": ("io.delta:delta:1", "a:b:2")})
    (task,) = platform.build_run(plain)["tasks"]
    assert task["existing_cluster_id"] == "c-1"
    assert task["libraries"][1:] == [{"maven": {"coordinates": "a:b:2"}}, {"jar": "s3://j.jar"}]  # Delta is its own
    assert task["libraries"][0]["whl"].endswith(".whl")


def test_a_cluster_of_databricks_gets_references_to_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    reference = "secrets/cdc/storage"
    more = {"new_cluster": {"num_workers": 2, "spark_conf": {"spark.y": "2"}}}
    platform: Any = build(
        monkeypatch, Hook(), "databricks", secret_environment={"CDC_STORAGE_OPTIONS": reference}, **more
    )
    (task,) = platform.build_run(SECRET_JOB)["tasks"]
    assert task["new_cluster"]["spark_env_vars"] == {"LEVEL": "info", "CDC_STORAGE_OPTIONS": "{{secrets/cdc/storage}}"}
    assert task["new_cluster"]["spark_conf"] == {"spark.y": "2", "spark.x": "1"}
    platform.secret_environment = {"CDC_STORAGE_OPTIONS": '{"key": "sesame"}'}
    with pytest.raises(ConfigError, match="no reference to a secret scope") as caught:
        platform.build_run(SECRET_JOB)
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("name", PLATFORMS)
def test_a_platform_names_its_missing_parameters_and_rejects_unknown_ones(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} needs application_uri"):
        build_platform(name)
    required = dict.fromkeys(load_platform(name).REQUIRED, "x")
    with pytest.raises(ConfigError, match=f"{name} has no parameter nonsense"):
        build_platform({"platform": name, **required, "nonsense": 1})
    built = build_platform({"platform": name, **required})
    assert built is not None
    assert build_platform(built.to_document()) == built


@pytest.mark.parametrize("name", PLATFORMS)
def test_a_provider_that_is_not_installed_is_named_with_its_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_platform(name), "HOOK", "absent_package.hooks.Hook")
    platform = build_platform({"platform": name, **dict.fromkeys(load_platform(name).REQUIRED, "x")})
    assert platform is not None
    with pytest.raises(ConfigError, match=f"{name} needs apache-airflow-providers-.*absent_package") as caught:
        platform.cancel("7")
    assert f"airflow-provider-cdc[{platform.EXTRA}]" in str(caught.value.remedy)


@pytest.mark.parametrize("name", [name for name in PLATFORMS if not load_platform(name).TAKES_REFERENCES])
def test_a_reference_to_a_secret_is_rejected_where_jobs_cannot_read_it(name: str) -> None:
    references = {"secret_environment": {"CDC_STORAGE_OPTIONS": "cdc:storage"}}
    platform = build_platform({"platform": name, **dict.fromkeys(load_platform(name).REQUIRED, "x"), **references})
    assert platform is not None
    with pytest.raises(ConfigError, match=f"cannot be passed to {name}") as caught:
        platform.settings(SECRET_JOB)
    assert str(caught.value.remedy).startswith("omit the options")


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (ConnectionResetError(), True), (TimeoutError(), True), (Conflict(), False), (NotFound(), False), (ValueError(), False),
        (ConfigError("x"), False), (type("ServiceUnavailable", (Exception,), {"code": 503})(), True),
        (type("TooManyRequests", (Exception,), {"code": 429})(), True),
        (type("ClientError", (Exception,), {"response": {"ResponseMetadata": {"HTTPStatusCode": 500}}})(), True),
        (type("ClientError", (Exception,), {"response": {"ResponseMetadata": {"HTTPStatusCode": 403}}})(), False),
    ],
)  # fmt: skip
def test_errors_that_go_away_by_themselves(error: Exception, transient: bool) -> None:
    assert is_transient(error) is transient
