"""The write side of a run: everything that becomes durable goes through its four parts."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_cdc.core.writing.batch_builder import BatchBuilder
from airflow_provider_cdc.core.writing.batch_committer import Committer
from airflow_provider_cdc.core.writing.capture_state import CaptureState
from airflow_provider_cdc.core.writing.event_writer import EventWriter


@dataclass(frozen=True, slots=True)
class RunOutput:
    """The write side of a run.

    :param state: the offset that the next commit makes durable
    :param batcher: the batch that is being made; takes notifications and outcomes of signals
    :param writer: writes events into the batch
    :param committer: decides when the batch is committed
    """

    state: CaptureState
    batcher: BatchBuilder
    writer: EventWriter
    committer: Committer
