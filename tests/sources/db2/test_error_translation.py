"""Failures of Db2, and the errors that they become."""

from __future__ import annotations

import pytest

from airflow_provider_cdc.core.errors import (
    AccessDenied,
    CdcError,
    ConfigError,
    NotGranted,
    PrerequisiteError,
    SourceBusy,
    SourceUnavailable,
    TransientError,
    UnreadableValue,
)
from airflow_provider_cdc.sources.db2.connect import translate_driver_errors
from airflow_provider_cdc.sources.db2.error_translation import Db2Error, ReadingCancelled, build_cdc_error, code_of
from tests.support.sources.db2.db2_settings import config

HEAD = "[IBM][CLI Driver][DB2/LINUXX8664] "


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ('SQL30082N  Security processing failed with reason "24" ("USERNAME AND/OR PASSWORD INVALID").  SQLSTATE=08001 SQLCODE=-30082', AccessDenied),
        ('SQL0204N  "SHOP.T" is an undefined name.  SQLSTATE=42704 SQLCODE=-204', NotGranted),
        ("SQL0551N  The statement failed because the authorization ID does not have the required privilege.  SQLSTATE=42501 SQLCODE=-551", NotGranted),
        ('SQL30081N  A communication error has been detected.  SQLSTATE=08001 SQLCODE=-30081', SourceUnavailable),
        ('SQL1224N  The database manager is not able to accept new requests.  SQLSTATE=55032 SQLCODE=-1224', SourceUnavailable),
        ('SQL0911N  The current transaction has been rolled back because of a deadlock or timeout.  Reason code "68".  SQLSTATE=40001 SQLCODE=-911', SourceBusy),
        ('SQL1013N  The database alias name or database name "NOPE" could not be found.  SQLSTATE=42705 SQLCODE=-1013', ConfigError),
        ('SQL30061N  The database alias or database name "NOPE" was not found at the remote node.  SQLSTATE=08004 SQLCODE=-30061', ConfigError),
        ("SQL1116N  A connection was not made because of BACKUP PENDING.  SQLSTATE=57019 SQLCODE=-1116", PrerequisiteError),
        ("SQL0668N  Operation not allowed for reason code 7.  SQLSTATE=57016 SQLCODE=-668", PrerequisiteError),
        ("SQL0964C  The transaction log for the database is full.  SQLSTATE=57011 SQLCODE=-964", SourceUnavailable),
        ("CLI0108E  Communication link failure. SQLSTATE=40003 SQLCODE=-99999", SourceUnavailable),
        ("SQL0420N  Invalid character found in a character string argument.  SQLSTATE=22018 SQLCODE=-420", UnreadableValue),
        ('SQL0104N  An unexpected token was found.  SQLSTATE=42601 SQLCODE=-104', PrerequisiteError),
    ],
)  # fmt: skip
def test_each_error_has_its_kind(message: str, kind: type[CdcError]) -> None:
    error = build_cdc_error(Db2Error(HEAD + message), config(), "SHOP.T")
    assert type(error) is kind
    assert error.where == "SHOP.T"
    assert error.safe
    assert error.remedy
    assert message.partition("  ")[0] in error.message


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("SQL0204N x SQLCODE=-204", -204), ("SQL1224N  no code", -1224), ("SQL0100W  nothing found", 100), ("anything", 0),
        ("CLI0115E  Invalid cursor state. SQLSTATE=24000 SQLCODE=-99999", -99999),
    ],
)  # fmt: skip
def test_the_code_of_a_message(message: str, code: int) -> None:
    assert code_of(message) == code


def test_an_error_never_shows_the_password() -> None:
    with pytest.raises(CdcError) as caught, translate_driver_errors(config()):
        raise Db2Error(f"{HEAD}SQL30081N at secret-word SQLCODE=-30081")
    assert "secret-word" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert isinstance(caught.value, TransientError)


def test_without_a_place_the_server_is_named() -> None:
    assert build_cdc_error(ReadingCancelled(), config()).where == "localhost:50000/testdb"
