"""Partial updates, which have the changes of a document and not the document after them: the interface that applies them in targets.

A schema names the source that does it (:attr:`~airflow_provider_cdc.core.model.table_schema.DocumentSchema.updates`). It is loaded where an event needs it and nowhere else, and
without the driver of the database.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


class PartialUpdateApplier(Protocol):
    """Applies updates of one kind of source."""

    def apply_updates(
        self, bases: Sequence[str | None], follows: npt.NDArray[np.int64], said: Mapping[str, pa.Array]
    ) -> tuple[pa.Array, dict[int, str]]:
        """Return the document after each of some updates.

        :param bases: the text of the document before each, where ``follows`` is -1
        :param follows: the update before it of the same document, an earlier one of these; -1 if it is the first
        :param said: the event columns of these updates (:attr:`~airflow_provider_cdc.core.model.table_schema.DocumentSchema.columns`); those that a batch does not have are missing
        :return: texts, null where an update could not be applied; and for each of those why: neither values nor keys are in it
        """
        ...


def partial_updates(kind: str) -> PartialUpdateApplier:
    """Return the object that applies the partial updates of a kind of source.

    :raises ConfigError: there is no such kind
    """
    # neither core nor targets know a source
    return cast(PartialUpdateApplier, importlib.import_module("airflow_provider_cdc.sources").partial_updates(kind))
