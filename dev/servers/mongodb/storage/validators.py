"""Validators of collections: what ``create`` and ``collMod`` may say of one, and which documents it keeps out.

By MongoDB's manual ("Schema Validation"): the level says which documents are looked at, the action whether a document that fails is refused (error 121) or
only noted in the server's log. The recordings ``ddl`` have validators and no document that fails one.
"""

from __future__ import annotations

from typing import Any

from dev.servers.mongodb.query import filter_explanations, queries
from dev.servers.mongodb.storage.versioned_collections import Collection
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError, type_name

FAILED = 121
LEVELS, ACTIONS = ("off", "strict", "moderate"), ("error", "warn")
NO_VALIDATORS = frozenset({"admin", "config", "local"})


def check_validator(command: str, db: str, name: str, given: Document) -> None:
    """Raise when a command gives a validator, a level or an action that cannot be."""
    for option, known in (("validationLevel", LEVELS), ("validationAction", ACTIONS)):
        if option in given and given[option] not in known:
            raise MongoError(2, f"Enumeration value '{given[option]}' for field '{command}.{option}' is not a valid value.")  # fmt: skip
    validator = given.get("validator")
    if validator is None:
        return
    if not isinstance(validator, dict):
        raise MongoError(14, f"BSON field '{command}.validator' is the wrong type '{type_name(validator)}', expected type 'object'")  # fmt: skip
    if validator and name.startswith("system."):
        raise MongoError(72, f"Document validators not allowed on system collection {db}.{name}")
    if validator and db in NO_VALIDATORS:
        raise MongoError(72, f"Document validators are not allowed on collections in the {db} database")
    queries.compile_filter(validator)


def validate(collection: Collection, document: Document, before: Document | None = None) -> None:
    """Raise for a document that the collection's validator refuses; ``before`` is what an update changes."""
    options = collection.options
    validator: Any = options.get("validator")
    level = options.get("validationLevel", "strict")
    if not validator or level == "off" or options.get("validationAction", "error") != "error":
        return
    test = queries.compile_filter(validator)
    if test(document) or (level == "moderate" and before is not None and not test(before)):
        return
    details = filter_explanations.explain_filter(validator, document)
    info = {"failingDocumentId": document["_id"], "details": details}
    raise MongoError(FAILED, "Document failed validation", errInfo=info)
