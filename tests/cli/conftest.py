"""The command line inside this process, and a connector to use it on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.operators.capture import CaptureOperator
from tests.support.airflow.airflow_connector import ShopConnector, context, make_shop
from tests.support.airflow.command_line import parser


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "")  # commands set it; it is put back afterwards
    shop_connector = make_shop(monkeypatch, tmp_path, "cli")
    yield shop_connector
    shop_connector.store.close()


def capture(shop_connector: ShopConnector, **options: Any) -> None:
    CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop", **options).execute(
        context()
    )


def run(*line: str) -> None:
    """``run("offsets", "shop")`` is ``airflow cdc offsets shop``."""
    args = parser().parse_args(line)
    args.func(args)


def clean(captured: Any) -> None:
    """Forget what captures have logged."""
    captured.readouterr()
