"""Tables of error codes: one meaning per code, no secret in a text."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from airflow_provider_cdc.core.errors import AccessDenied, SourceUnavailable
from airflow_provider_cdc.sources.error_meanings import AGAIN, RETRY, ErrorMeaning, mask_secrets, meaning_per_code

DENIED = ErrorMeaning(AccessDenied, "The database rejected user {user}", AGAIN, "GRANT CONNECT TO {user}")
LOST = ErrorMeaning(SourceUnavailable, "The database does not answer", AGAIN, RETRY)


def test_an_error_has_the_servers_message_and_the_names() -> None:
    error = DENIED.build_error("ORA-01045: {no} right", "db:1521", user="CDC")
    assert (type(error), error.message) == (AccessDenied, "The database rejected user CDC: ORA-01045: {no} right")
    assert (error.where, error.safe, error.remedy) == ("db:1521", AGAIN, "GRANT CONNECT TO CDC")


def test_a_code_with_two_meanings_is_refused() -> None:
    assert meaning_per_code([((1, 2), DENIED), ({3}, LOST), ((1,), DENIED)]) == {1: DENIED, 2: DENIED, 3: LOST}
    with pytest.raises(ValueError, match=r"code 2 .*rejected.*does not answer"):
        meaning_per_code([((1, 2), DENIED), ((2, 3), LOST)])


def test_each_secret_is_masked_unless_it_is_too_short_to_be_one() -> None:
    assert (
        mask_secrets("tiger or lion, as a", SecretStr("tiger"), SecretStr("lion"), SecretStr("a")) == "*** or ***, as a"
    )
    assert mask_secrets("tiger", SecretStr(""), SecretStr("ti")) == "tiger"
