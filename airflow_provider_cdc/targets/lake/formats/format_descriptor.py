"""The needs of a Spark session for a kind of target; without Spark, so that the starter of a session can ask."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.targets.lake.formats.table_location import is_path
from airflow_provider_cdc.targets.lake.spark_releases.release_packages import find_packages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_provider_cdc.targets.lake.formats.target_interface import Target


PROFILES = ("compatible", "fast")
"""How tables begin. ``compatible``: with the plainest form of the format, which most readers know; a feature is switched on by the first change
that needs it. ``fast``: with features that make changes of rows cheaper, too."""

WRITES = ("auto", "merge", "commit")
"""``auto``: the cheaper one. ``merge``: always a MERGE by Spark. ``commit``: arrays wherever they can be used."""


LEAST_KEEP = timedelta(hours=1)
"""Readers and writers that have begun still need files that were replaced since then."""


def known_keep(hours: float) -> timedelta:
    """Parse how long a table's older states stay.

    :raises ConfigError: too short a time
    """
    keep = timedelta(0) if math.isnan(hours) else timedelta(hours=min(hours, 1e6))
    if keep < LEAST_KEEP:
        raise ConfigError(
            f"Older table versions cannot expire after {hours:g} hours: running readers and writers would lose their files.",
            safe="No table was changed.",
            remedy=f"keep them for {LEAST_KEEP.total_seconds() / 3600:g} hour or longer; 168 hours are a week",
        )
    return keep


@dataclass(frozen=True, slots=True)
class TableFormat:
    """A kind of target: the needs of its sessions, and the class of its tables.

    :param kind: its name in the jobs' arguments
    :param table_class: of its tables, a :class:`airflow_provider_cdc.targets.lake.formats.target_interface.Target`; as ``module:name``
    :param required: settings that are fixed once a session exists. Where several formats have a setting, it lists the values of all
    :param pinned: settings of each session that writes tables, whatever the cluster's defaults say
    :param unset: settings that no such session may have
    :param advised: settings that suit change batches better than the defaults; settings of the user win
    :param silenced: loggers of the JVM that report errors where nothing is wrong
    :param named: whether a table may be one of a catalog (``catalog.schema.table``), and not only in a folder
    :param stamp: a function of a filesystem (fsspec), a folder and an earlier stamp, as ``module:name``; see :meth:`load_stamp`. Not every kind has one
    """

    kind: str
    table_class: str
    required: Mapping[str, str] = field(default_factory=dict)
    pinned: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    advised: Mapping[str, str] = field(default_factory=dict)
    silenced: tuple[str, ...] = ()
    named: bool = False
    stamp: str = ""

    def open_target(self, spark: SparkSession, location: str, *, profile: str = "compatible") -> Target:
        """Open the table at a location, whether it exists or not.

        :param profile: one of :data:`PROFILES`, for a table that does not exist yet

        >>> load_format("delta").open(spark, "/lake/inventory/orders").exists()
        False

        :raises ConfigError: this kind has no tables at such a location
        """
        if not (self.named or is_path(location)):
            raise ConfigError(
                f"{location!r} is not a path, but tables of the kind {self.kind!r} need a path as their location.",
                safe="No table was changed.",
                remedy="give a path or URL, for example /lake/{database}/{table}",
            )
        target: Target = _named(self.table_class)(spark, location, profile=profile)
        return target

    def find_packages(self, spark_version: str = "") -> tuple[str, ...]:
        """Return the Maven coordinates of its jars for a release of Spark, as :func:`~.release_packages.find_packages`."""
        return find_packages(self.kind, spark_version)

    def load_stamp(self) -> Callable[[Any, str, str], str] | None:
        """Load a function that returns a text, without Spark, for a filesystem, a folder, and an earlier text or none.

        The text changes whenever the table in a folder changes, and is empty if there is none.
        """
        return _named(self.stamp) if self.stamp else None


def _named(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
