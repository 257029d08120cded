"""The notification channel ``log``."""

from __future__ import annotations

import logging

from airflow_provider_cdc.core.model.notifications import Notification

log = logging.getLogger(__name__)


class LogChannel:
    """Writes each notification as one line of the run's log."""

    def send(self, connector: str, notification: Notification) -> None:
        # a message in it may have several lines
        log.info("Notification of connector %s: %s", connector, " ".join(str(notification).split()))
