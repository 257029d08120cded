"""The run of a job on a service: submission, polls until its end, and errors of the connection in between."""

from __future__ import annotations

import http.client
import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.services.submit.spark_job import JobStatus, SparkJob, SparkSubmitter

log = logging.getLogger(__name__)

ATTEMPTS = 4
"""How often a request that changes something is sent, if the service is out of reach or busy."""
FIRST_DELAY_S = 1.0
"""Seconds before the second attempt; each later one waits twice as long."""
POLL_INTERVAL_S, PATIENCE_S = 10.0, 600.0
"""Value for a service without such parameters."""
_BUSY = (408, 425, 429)

T = TypeVar("T")


def run_job(submitter: SparkSubmitter, job: SparkJob, started: Callable[[str], None]) -> JobStatus:
    """Run a job until its end, and return its final status.

    :param started: gets the identity of the run as soon as it is known
    :raises ConfigError: the job cannot run there
    :raises Exception: of the service, if it rejects the job, or is out of reach for too long
    """
    run = submit_job(submitter, job)
    started(run)
    return wait_for_end(submitter, run)


def submit_job(submitter: SparkSubmitter, job: SparkJob) -> str:
    """Start a job. An answer that is lost starts no second run: the token is the same."""
    return _attempt(lambda: submitter.submit(job))


def cancel_job(submitter: SparkSubmitter, run: str) -> None:
    """Cancel a run."""
    _attempt(lambda: submitter.cancel(run))


def wait_for_end(submitter: SparkSubmitter, run: str, *, timeout: float = float("inf")) -> JobStatus:
    """Poll until the run has ended, or the time is over; return the last status.

    :param timeout: seconds
    """
    interval = getattr(submitter, "poll_interval", POLL_INTERVAL_S)
    polls, until = JobPolls(submitter, run), time.monotonic() + timeout
    while True:
        status = polls.poll()
        if (status is not None and not status.active) or time.monotonic() >= until:
            return status or JobStatus("running", "The service is out of reach.")
        time.sleep(min(interval, max(until - time.monotonic(), 0)))


class JobPolls:
    """The polls of one run. A service that is out of reach is asked again for ``patience`` seconds.

    :param submitter: the service
    :param run: identity of the run
    """

    def __init__(self, submitter: SparkSubmitter, run: str) -> None:
        self._submitter, self._run = submitter, run
        self._patience = getattr(submitter, "patience", PATIENCE_S)
        self._answered, self._logged = time.monotonic(), ""

    def poll(self) -> JobStatus | None:
        """Return the status of the run; ``None`` if the service is out of reach.

        :raises Exception: of the service, if it is out of reach for too long, or does not know the run
        """
        try:
            status = self._submitter.inspect(self._run)
        except Exception as e:
            if not is_transient(e) or time.monotonic() - self._answered > self._patience:
                raise
            log.warning("The status of Spark job %s is not known at the moment: %s", self._run, e)
            return None
        self._answered = time.monotonic()
        text = f"Spark job {self._run} is {status.stage}. {status.message} {status.url}".strip()
        if text != self._logged:
            log.info("%s", text)
            self._logged = text
        return status


def is_transient(error: BaseException) -> bool:
    """Check whether an error of a service is temporary: no connection, too many requests, or a fault of the server.

    Each client library has separate classes and status codes. Airflow's hooks wrap some of them.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, CdcError):
            return False
        if isinstance(cause, ConnectionError | TimeoutError | http.client.HTTPException):
            return True
        status = _status_code(cause)
        if status is not None:
            return status in _BUSY or status >= 500
        if any(name.__name__ in _NO_CONNECTION for name in type(cause).__mro__):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


_NO_CONNECTION = (
    "ConnectionError", "Timeout", "ChunkedEncodingError",  # requests
    "EndpointConnectionError", "ConnectionClosedError", "HTTPClientError",  # botocore
    "MaxRetryError", "ProtocolError",  # urllib3, below the client of Kubernetes
    "RetryError", "TransportError",  # google
)  # fmt: skip


def _status_code(error: BaseException) -> int | None:
    """Return the HTTP status of an error: of requests, botocore, google.api_core or kubernetes."""
    response: Any = getattr(error, "response", None)
    found = [getattr(response, "status_code", None), getattr(error, "code", None), getattr(error, "status", None)]
    if isinstance(response, dict):
        found.append(response.get("ResponseMetadata", {}).get("HTTPStatusCode"))
    return next((int(code) for code in found if isinstance(code, int) and 100 <= code < 600), None)


def _attempt(request: Callable[[], T]) -> T:
    delay = FIRST_DELAY_S
    for _ in range(ATTEMPTS - 1):
        try:
            return request()
        except Exception as e:
            if not is_transient(e):
                raise
            log.warning("The service that runs Spark jobs is out of reach or busy; trying again in %gs: %s", delay, e)
        time.sleep(delay)
        delay *= 2
    return request()
