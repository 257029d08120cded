"""Views: pipelines over other collections."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from dev.servers.mongodb.query import stages
from dev.servers.mongodb.storage.transactions import View
from dev.servers.mongodb.storage.versioned_collections import Collection
from dev.servers.mongodb.values.documents import Document

if TYPE_CHECKING:
    from dev.servers.mongodb.operation.context import Context


def documents(context: Context, view: View, name: str) -> Iterator[Document]:
    """The documents of a collection or a view that a stage reads beside its own."""
    collection = context.collection(name)
    if collection is None:
        return iter([])
    return of_view(context, view, collection, []) if collection.kind == "view" else view.documents(collection)


def of_view(context: Context, view: View, collection: Collection, pipeline: list[Document]) -> Iterator[Document]:
    """Run a pipeline on a view, and return its documents."""
    source = context.server.node.catalog.find(f"{collection.db}.{collection.options['viewOn']}")
    whole = [*collection.options.get("pipeline", []), *pipeline]
    if source is not None and source.kind == "view":
        return of_view(context, view, source, whole)
    work = stages.compile_pipeline(whole, read=partial(documents, context, view))
    return work(view.documents(source) if source is not None else iter([]))
