"""Refuses products that speak MongoDB's protocol and are no MongoDB: their change streams have no positions that can be compared, or there are none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from airflow_provider_cdc.core.errors import PrerequisiteError

_HOSTS: Final = (
    (".docdb.amazonaws.com", "Amazon DocumentDB"),
    (".docdb-elastic.amazonaws.com", "Amazon DocumentDB"),
    (".cosmos.azure.com", "Azure Cosmos DB"),
)
"""Ends of the names that these services give their servers."""


def product_of(hello: Mapping[str, Any], build: Mapping[str, Any], hosts: Iterable[str]) -> str | None:
    """Return the product that answers, by its own reply; ``None``: MongoDB, or a product that does not name itself.

    :param hello: answer to ``hello``
    :param build: answer to ``buildInfo``
    """
    if "ferretdbVersion" in build or "ferretdb" in build:
        return "FerretDB"
    internal = hello.get("internal")
    if isinstance(internal, Mapping) and not internal.keys().isdisjoint({"documentdb_versions", "cosmos_versions"}):
        return "DocumentDB (Azure, or its open engine)"
    if "_t" in build:
        return "Azure Cosmos DB"
    for host in hosts:
        for end, product in _HOSTS:
            if host.lower().endswith(end):
                return product
    return None


def no_mongodb(product: str, where: str | None = None) -> PrerequisiteError:
    """Return the error that refuses a product."""
    return PrerequisiteError(
        f"The server is {product}, not MongoDB: its change streams cannot start at a cluster time.",
        where=where,
        safe="Nothing was read; the offset is untouched.",
        remedy="capture from a replica set or a sharded cluster of MongoDB 5.0 or newer, and correct the "
        "connection string if it points to another server",
    )


UNKNOWN: Final = "an unknown product"
"""A product that shows by its change streams that it is not MongoDB."""
