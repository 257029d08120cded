"""Messages of the server that carry no part of the log: errors and notices."""

from __future__ import annotations

from dataclasses import dataclass


class ReplicationError(Exception):
    """The server has ended the stream, or refused to begin it.

    :ivar state: SQLSTATE, such as ``42704``; empty = the server has closed the connection without a reason
    """

    def __init__(self, state: str, message: str, detail: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.state, self.message, self.detail, self.hint = state, message, detail, hint

    def __str__(self) -> str:
        return ". ".join(text for text in (self.message, self.detail, self.hint) if text)


@dataclass(frozen=True, slots=True)
class ServerNotice:
    """The fields of an error or a notice ("Error and Notice Message Fields").

    :param fields: letter of a field → its text
    """

    fields: dict[str, str]

    @classmethod
    def parse(cls, body: bytes) -> ServerNotice:
        """Parse the body of a message.

        >>> ServerNotice.parse(b"SERROR\\0C42704\\0Mno slot\\0\\0").fields
        {'S': 'ERROR', 'C': '42704', 'M': 'no slot'}
        """
        texts = [text.decode("utf-8", "replace") for text in body.split(b"\0") if text]
        return cls({text[0]: text[1:] for text in texts})

    def to_error(self) -> ReplicationError:
        """Return it as an error."""
        get = self.fields.get
        return ReplicationError(get("C", ""), get("M", "the server gives no reason"), get("D", ""), get("H", ""))
