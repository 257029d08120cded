"""Texts about a connector for callbacks, from real state tables."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import BaseNotifier

from airflow_provider_cdc.core.spi.store_interfaces import DesiredState
from airflow_provider_cdc.notifications.connector_notifier import CdcNotifier
from airflow_provider_cdc.operators.capture import CaptureOperator
from tests.support.airflow.airflow_connector import ShopConnector, context, make_shop


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    shop_connector = make_shop(monkeypatch, tmp_path, "notifier")
    shop_connector.order(1)
    CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop").execute(context())
    yield shop_connector
    shop_connector.store.close()


class MailNotifier(BaseNotifier):
    """A notifier as providers have them."""

    template_fields = ("text",)

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self.sent = text, list[str]()

    def notify(self, context: Any) -> None:
        self.sent.append(self.text)


def test_another_notifier_gets_the_state_and_the_newest_notifications(shop_connector: ShopConnector) -> None:
    shop_connector.store.set_control("shop", DesiredState.PAUSED, "ann", "upgrade")
    mail = MailNotifier("{{ cdc_text }} | {{ cdc_notifications[0].type }}")
    CdcNotifier("{{ name }}", callback=mail)({"name": "shop"})
    (text,) = mail.sent
    assert text.startswith("Connector shop is at entry 2, batch 1.\nIt is paused by ann")
    assert "Initial Snapshot: STARTED" in text
    assert "Initial Snapshot: COMPLETED" in text
    assert "data_collections=inventory.orders" in text
    assert text.endswith("| STARTED")


def test_only_what_came_since_the_run_began_is_reported(shop_connector: ShopConnector) -> None:
    mail = MailNotifier("{{ cdc_notifications | length }}")
    run = SimpleNamespace(start_date=datetime.now(UTC) + timedelta(minutes=1))
    CdcNotifier(shop_connector.definition, callback=mail)({"dag_run": run})
    assert mail.sent == ["0"]


def test_by_itself_it_writes_into_the_log(shop_connector: ShopConnector, capfd: pytest.CaptureFixture[str]) -> None:
    CdcNotifier("shop")({})
    assert "Connector shop is at entry 2" in "".join(capfd.readouterr())


def test_a_connector_that_has_not_run_is_no_error(shop_connector: ShopConnector) -> None:
    mail = MailNotifier("{{ cdc_text }}")
    CdcNotifier("other", callback=mail)({})
    assert mail.sent == ["Connector other has not run yet."]


def test_names_and_errors_cannot_put_tags_into_a_mail(shop_connector: ShopConnector) -> None:
    shop_connector.store.record_run_end("shop", "no table <script>alert(1)</script>")
    mail = MailNotifier("{{ cdc_html }}")
    CdcNotifier("shop", callback=mail)({})
    (html,) = mail.sent
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert html.startswith("<pre>")
    assert html.endswith("</pre>")
