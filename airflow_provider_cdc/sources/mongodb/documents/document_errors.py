"""Errors in documents. The texts name places, types and fields, never values."""

from __future__ import annotations

from typing import Final

from airflow_provider_cdc.sources.mongodb.kernels import error_codes


class DocumentError(ValueError):
    """A document, or an update of one, that cannot be read as it is meant."""


class DamagedDocument(DocumentError):
    """Bytes that are not BSON, or not the BSON that is expected there.

    :ivar row: which document or value of those that were read together, from 0
    :ivar offset: the byte of it at which it shows
    :ivar not_utf8: whether nothing else is wrong than a text that is not UTF-8
    """

    def __init__(self, row: int, offset: int, problem: int) -> None:
        self.row: Final = row
        self.offset: Final = offset
        self.problem: Final = problem
        self.not_utf8: Final = problem == error_codes.UTF8
        super().__init__(f"document {row} cannot be read: at its byte {offset}, {error_codes.TEXTS[problem]}")


class AmbiguousPath(DocumentError):
    """The path of an update that may mean a field with dots in its name or a field of a field, and the server does not say which."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"the path {path!r} of an update may be one name that contains dots or a field of a field, and the "
            "server does not report which (disambiguatedPaths): open the change stream with showExpandedEvents, "
            "or capture whole documents"
        )


class UpdateMismatch(DocumentError):
    """An update of another document than this one."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"an update does not fit the document to which it is applied: {path!r} {problem}")
