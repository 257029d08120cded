"""A stand-in of Dataproc: the interfaces of gRPC for jobs and batches, as far as submissions use them.

It is no Dataproc: it has no clusters, and checks no login. A run is a process on this machine, which the test chooses.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import grpc
import pytest
from google.cloud import dataproc_v1 as dataproc
from google.cloud.dataproc_v1.services.batch_controller.transports import BatchControllerGrpcTransport
from google.cloud.dataproc_v1.services.job_controller.transports import JobControllerGrpcTransport
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2

from tests.support.airflow.airflow_connector import connect
from tests.support.servers.spark_runs import Command, Program, Run

_JOB_STATES = {"running": "RUNNING", "failed": "ERROR", "succeeded": "DONE", "cancelled": "CANCELLED"}
_BATCH_STATES = {"running": "RUNNING", "failed": "FAILED", "succeeded": "SUCCEEDED", "cancelled": "CANCELLED"}


class DataprocService:
    """A stand-in of Dataproc.

    :param command: of its runs
    """

    def __init__(self, command: Command) -> None:
        self.command = command
        self.runs: dict[str, Run] = {}

    def connect(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make the default connection, and connect the clients of Airflow's hook to this service; they are the real ones."""
        from airflow.providers.google.cloud.hooks.dataproc import DataprocHook

        connect(monkeypatch, "google_cloud_default", conn_type="google_cloud_platform")

        def job_client(*_: Any, **__: Any) -> Any:
            return dataproc.JobControllerClient(transport=JobControllerGrpcTransport(channel=self._channel))

        def batch_client(*_: Any, **__: Any) -> Any:
            return dataproc.BatchControllerClient(transport=BatchControllerGrpcTransport(channel=self._channel))

        monkeypatch.setattr(DataprocHook, "get_job_client", job_client)
        monkeypatch.setattr(DataprocHook, "get_batch_client", batch_client)

    def __enter__(self) -> Self:
        self._server = grpc.server(ThreadPoolExecutor(4))
        v1 = "google.cloud.dataproc.v1"
        methods: dict[str, dict[str, tuple[Any, Any]]] = {
            f"{v1}.JobController": {
                "SubmitJob": (self._submit_job, dataproc.SubmitJobRequest), "GetJob": (self._get_job, dataproc.GetJobRequest),
                "CancelJob": (self._cancel_job, dataproc.CancelJobRequest),
            },
            f"{v1}.BatchController": {
                "CreateBatch": (self._create_batch, dataproc.CreateBatchRequest), "GetBatch": (self._get_batch, dataproc.GetBatchRequest),
            },
            "google.longrunning.Operations": {"CancelOperation": (self._cancel_operation, operations_pb2.CancelOperationRequest)},
        }  # fmt: skip
        for service, handlers in methods.items():
            generic = {
                name: grpc.unary_unary_rpc_method_handler(
                    method,
                    request_deserializer=getattr(kind, "deserialize", None) or kind.FromString,
                    response_serializer=_serialize,
                )
                for name, (method, kind) in handlers.items()
            }
            self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, generic)])
        port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        return self

    def __exit__(self, *_: Any) -> None:
        self._channel.close()
        self._server.stop(None).wait()
        for run in self.runs.values():
            run.cancel()

    def _add(self, name: str, program: Any, properties: Any, body: Any, context: Any) -> None:
        if name in self.runs:
            context.abort(grpc.StatusCode.ALREADY_EXISTS, f"Already exists: {name}")
        files = Program(
            program.main_python_file_uri, list(program.args), list(program.python_file_uris), list(program.jar_file_uris),
            dict(properties),
        )  # fmt: skip
        self.runs[name] = Run(files, self.command, body)

    def _find(self, name: str, context: Any) -> Run:
        if name not in self.runs:
            context.abort(grpc.StatusCode.NOT_FOUND, f"Not found: {name}")
        return self.runs[name]

    def _submit_job(self, request: Any, context: Any) -> Any:
        job = request.job
        self._add(job.reference.job_id, job.pyspark_job, job.pyspark_job.properties, job, context)
        return job

    def _get_job(self, request: Any, context: Any) -> Any:
        run = self._find(request.job_id, context)
        state = dataproc.JobStatus.State[_JOB_STATES[run.inspect()]]
        return dataproc.Job(reference=run.body.reference, status=dataproc.JobStatus(state=state))

    def _cancel_job(self, request: Any, context: Any) -> Any:
        self._find(request.job_id, context).cancel()
        return self._get_job(request, context)

    def _create_batch(self, request: Any, context: Any) -> Any:
        batch = request.batch
        self._add(request.batch_id, batch.pyspark_batch, batch.runtime_config.properties, batch, context)
        return operations_pb2.Operation(name=f"{request.parent}/operations/{request.batch_id}")

    def _get_batch(self, request: Any, context: Any) -> Any:
        name = request.name.rpartition("/")[2]
        state = dataproc.Batch.State[_BATCH_STATES[self._find(name, context).inspect()]]
        parent = request.name.partition("/batches/")[0]
        return dataproc.Batch(name=request.name, state=state, operation=f"{parent}/operations/{name}")

    def _cancel_operation(self, request: Any, context: Any) -> Any:
        self._find(request.name.rpartition("/")[2], context).cancel()
        return empty_pb2.Empty()


def _serialize(message: Any) -> bytes:
    wrapped = type(message).serialize if hasattr(type(message), "serialize") else None
    return wrapped(message) if wrapped else message.SerializeToString()  # type: ignore[no-any-return]
