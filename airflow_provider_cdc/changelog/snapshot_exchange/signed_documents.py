"""JSON documents in a folder, signed with a key: readers run the conditions that are in them as SQL.

An account that may write to the change log's storage may not thereby run statements at the source.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any, Literal, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.core.errors import ChangeLogDamaged
from airflow_provider_cdc.core.spi.remote_readers import ChunkTask, ReaderError

FOLDER = "snapshots"
"""Folder of a connector with a folder for each snapshot that other processes read."""
PLAN = "plan.json"
CAPTURE = "capture.json"
GROUP = "group-{number}.json"

Document = TypeVar("Document", bound=BaseModel)


class SnapshotPlan(BaseModel):
    """The connector of the snapshot.

    :param definition: without secrets
    """

    model_config = ConfigDict(extra="forbid")

    definition: dict[str, Any]


class CapturePhase(BaseModel):
    """The work of readers at the moment.

    :param phase: ``gathering``: connect and report; ``opening``: open view number ``view``; ``reading``: take chunks; ``ended``: end
    :param view: number of the view, from 1
    :param members: readers that take part; all others end, unless they may join late
    :param late: readers may join at any time
    :param beat: grows while the capture is alive
    """

    model_config = ConfigDict(extra="forbid")

    phase: Literal["gathering", "opening", "reading", "ended"]
    view: int = 0
    members: list[str] = Field(default_factory=list)
    late: bool = False
    beat: int = 0


class ReaderSign(BaseModel):
    """A sign of life of a reader.

    :param reader: its id
    :param state: ``ready``: connected; ``open``: has view number ``view``; ``ended``
    :param facts: of the view
    :param group: the group that it reads
    :param rows: of this group, that it has read
    :param error: that it has ended with
    :param beat: grows while the reader is alive
    """

    model_config = ConfigDict(extra="forbid")

    reader: str
    state: Literal["ready", "open", "ended"]
    view: int = 0
    facts: dict[str, Any] = Field(default_factory=dict)
    group: int = 0
    rows: int = 0
    error: ReaderError | None = None
    beat: int = 0


class Assignment(BaseModel):
    """Chunks that a reader is to read, in this order.

    :param group: that the chunks are of
    """

    model_config = ConfigDict(extra="forbid")

    group: int
    tasks: list[ChunkTask]


class SignedDocuments:
    """Documents of one snapshot.

    :param folder: of the snapshot, below the root of the storage
    :param key: secret that the capture and its readers share, such as the password of the source
    """

    def __init__(self, storage: Storage, folder: tuple[str, ...], key: str) -> None:
        self._storage, self._folder, self._key = storage, folder, key.encode()

    def write(self, name: str, document: BaseModel) -> None:
        """Create or replace a document."""
        body = document.model_dump_json()
        signed = orjson.dumps({"body": body, "signature": self._sign(name, body)})
        self._storage.replace(self._path(name), signed)

    def read(self, name: str, kind: type[Document]) -> Document | None:
        """Read a document; ``None`` if there is none.

        :raises ChangeLogDamaged: it was not written by the capture or one of its readers
        """
        data = self._storage.read(self._path(name))
        if not data:
            return None
        signed = orjson.loads(data)
        if not hmac.compare_digest(str(signed["signature"]), self._sign(name, str(signed["body"]))):
            raise ChangeLogDamaged(
                "A message of the snapshot has a wrong signature: neither the capture nor one of its readers has written it.",
                where=self._path(name),
                safe="Nothing that it asks for was done.",
                remedy="find out who else writes to the storage of the change log, then run the capture again",
            )
        return kind.model_validate_json(signed["body"])

    def list_names(self, folder: str) -> list[str]:
        """List the documents in a folder below."""
        return [f"{folder}/{name}" for name in self._storage.list(self._path(folder)) if name.endswith(".json")]

    def delete_all(self) -> None:
        """Delete the folder."""
        self._storage.delete_folder(self._storage.join_path(*self._folder))

    def _path(self, name: str) -> str:
        return self._storage.join_path(*self._folder, name)

    def _sign(self, name: str, body: str) -> str:
        return hmac.new(self._key, f"{'/'.join(self._folder)}/{name}\0{body}".encode(), hashlib.sha256).hexdigest()
