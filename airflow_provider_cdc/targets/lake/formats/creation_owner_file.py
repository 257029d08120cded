"""The file in a folder that names the owner of a table which is being created there: the remains of a killed run have no other owner."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from airflow_provider_cdc.targets.lake.formats.owners_and_markers import Owner
from airflow_provider_cdc.targets.lake.formats.table_values import WriteConflict

_SIGN = "_cdc_creating"


class CreationMarker:
    """The sign in a folder of a table that is not there yet.

    The sign is a file; its name shows the owner, so that no run reads a file that another run is writing.

    :param folder: the table's folder, a ``Path`` of Hadoop
    :param files: its filesystem, of Hadoop
    """

    def __init__(self, spark: SparkSession, folder: Any, files: Any) -> None:
        self._spark, self._folder, self._files = spark, folder, files

    def find_foreign_content(self, owner: Owner) -> str:
        """Find the content of the folder, as :meth:`airflow_provider_cdc.targets.lake.formats.target_interface.Target.find_foreign_content`."""
        if not self._files.exists(self._folder):
            return ""
        names = [status.getPath().getName() for status in self._files.listStatus(self._folder)]
        if not names or format_marker_name(owner) in names:
            return ""
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return f"the folder contains {', '.join(sorted(names)[:3])}{more}"

    @contextlib.contextmanager
    def mark_creation(self, owner: Owner, exists: Callable[[], bool]) -> Iterator[None]:
        """While the table is made and committed.

        :param exists: whether the table is there by now
        :raises Conflict: another run has made it in between
        """
        file = getattr(self._spark._jvm, "org.apache.hadoop.fs.Path")(self._folder, format_marker_name(owner))
        try:
            stream = self._files.create(file, True)
            stream.write(bytearray(owner.application_name.encode()))
            stream.close()
        except Py4JJavaError as e:
            # a run that is ready takes the sign away, and a local disk makes the files of one in several steps
            if exists():
                raise WriteConflict(str(e)) from e
            raise
        try:
            yield
        except WriteConflict:
            self._files.delete(file, False)
            raise
        self._files.delete(file, False)


def format_marker_name(owner: Owner) -> str:
    """Return the name of the file.

    >>> format_marker_name(Owner("shop", "shop.inventory.orders")) == format_marker_name(Owner("shop", "shop.inventory.lines"))
    False
    """
    return f"{_SIGN}.{hashlib.sha256(owner.application_name.encode()).hexdigest()[:16]}"
