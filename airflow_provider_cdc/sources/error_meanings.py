"""Tables from the error codes of a database to errors of this project, with the safe state and the remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import SecretStr

from airflow_provider_cdc.core.errors import CdcError

UNTOUCHED: Final = "Nothing was read; the offset is untouched."
AGAIN: Final = "Changes that were not committed to the change log are captured again by the next run."
RETRY: Final = "a retry resumes where this run stopped"


@dataclass(frozen=True, slots=True)
class ErrorMeaning:
    """The error for some error codes or texts of a database.

    :param message: first sentence; the server's message follows it
    :param remedy: like ``message``, may contain names in braces, which :meth:`build_error` fills in

    >>> meaning = ErrorMeaning(CdcError, "The database rejected user {user}", UNTOUCHED, "GRANT CONNECT TO {user}")
    >>> meaning.build_error("no right", "db:1521", user="cdc").message
    'The database rejected user cdc: no right'
    """

    kind: type[CdcError]
    message: str
    safe: str
    remedy: str

    def build_error(self, message: str, where: str, **names: str) -> CdcError:
        """Return the error for a message of the server."""
        return self.kind(
            f"{self.message.format(**names)}: {message}",
            where=where,
            safe=self.safe,
            remedy=self.remedy.format(**names),
        )


def meaning_per_code(meanings: Iterable[tuple[Iterable[int], ErrorMeaning]]) -> Mapping[int, ErrorMeaning]:
    """Return the meaning of each code.

    :raises ValueError: a code has two meanings
    """
    by_code: dict[int, ErrorMeaning] = {}
    for codes, meaning in meanings:
        for code in codes:
            if by_code.setdefault(code, meaning) is not meaning:
                raise ValueError(f"code {code} has two meanings: {by_code[code].message!r} and {meaning.message!r}")
    return by_code


def mask_secrets(text: str, *secrets: SecretStr) -> str:
    """Return the text with ``***`` instead of each secret of three characters or more.

    >>> mask_secrets("no login as cdc/tiger", SecretStr("tiger"))
    'no login as cdc/***'
    """
    for secret in secrets:
        value = secret.get_secret_value()
        text = text.replace(value, "***") if len(value) > 2 else text
    return text
