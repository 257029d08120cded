"""Prerequisites of capture: topology, version, privileges, images and the oplog, each with its remedy.

See "Setting up MongoDB" of the Debezium MongoDB connector document (spec MG-141 to 147).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import pymongo.errors as driver

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.errors import PrerequisiteError, TerminalError
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.spi.source import Finding
from airflow_provider_cdc.sources.mongodb.collection_tables import list_visible_collections, options_of
from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.config_enums import CaptureScope, FullUpdateType, OversizeHandling
from airflow_provider_cdc.sources.mongodb.connect import (
    Client,
    Deployment,
    deployment_of,
    now_of,
    open_client,
    translate_driver_errors,
)
from airflow_provider_cdc.sources.mongodb.errors import translate_error
from airflow_provider_cdc.sources.mongodb.field_rules import parts_of
from airflow_provider_cdc.sources.mongodb.log.stream_pipeline import build_start_option
from airflow_provider_cdc.sources.mongodb.oplog_range import can_start_stream, oplog_window
from airflow_provider_cdc.sources.mongodb.position import MongoPosition
from airflow_provider_cdc.sources.mongodb.privileges import (
    Privileges,
    oplog_grant,
    stream_allowed,
    stream_grant,
    write_grant,
)

OLDEST: Final = (5, 0)
SHORT_HOURS: Final = 24
"""The check reports an oplog that is full and goes back less far."""


def check_prerequisites(config: MongoDbConfig) -> list[Finding]:
    """All findings about prerequisites that are not met; an empty list = ready.

    :raises SourceUnavailable: no member answers
    :raises AccessDenied: user or password is wrong
    """
    with contextlib.closing(open_client(config)) as client, translate_driver_errors(config):
        try:
            deployment = deployment_of(client)
        except PrerequisiteError as e:
            return [Finding(e.message, e.remedy or "")]
        findings = [*_version(deployment, config), *_rights(client, config)]
        findings += [] if any(f.fatal for f in findings) else _opened(client, config)
        if any(f.fatal for f in findings):
            return findings
        listed = sorted(_listed(client, config), key=str)
        findings += [
            *_none_captured(listed, config),
            *_out_of_scope(listed, config),
            *_without_documents(config, deployment),
        ]
        findings += _images(client, config, deployment, [table for table in listed if config.in_scope(table)])
        return [*findings, *_signals(client, config), *_oplog(client, config, deployment)]


def _version(deployment: Deployment, config: MongoDbConfig) -> Iterator[Finding]:
    version = ".".join(map(str, deployment.version))
    if deployment.version[:2] < OLDEST:
        yield Finding(
            f"MongoDB {version} is older than 5.0 and cannot read collections at one point in time.",
            "upgrade the deployment",
        )
    images = config.capture_mode.pre_image or config.capture_mode_full_update_type is FullUpdateType.POST_IMAGE
    if images and not deployment.can_record_images:
        yield Finding(
            f"MongoDB {version} cannot record document images, which "
            f"capture.mode={config.capture_mode.value} requires: images are available from 6.0 on.",
            "upgrade the deployment, or set capture.mode=change_streams_update_full and capture.mode.full.update.type=lookup",
        )
    if config.cursor_oversize_handling_mode is OversizeHandling.SPLIT and not deployment.can_split_events:
        yield Finding(
            f"MongoDB {version} cannot split large events: this is available from 6.0.9 on.",
            "upgrade the deployment, or set cursor.oversize.handling.mode=fail or skip",
        )


def _rights(client: Client, config: MongoDbConfig) -> Iterator[Finding]:
    if not stream_allowed(Privileges(client), config):
        scope = config.capture_scope
        where = "the deployment" if scope is CaptureScope.DEPLOYMENT else f"{scope.value} {config.capture_target}"
        yield Finding(
            f"User {config.mongodb_user} may not open a change stream on {where}: it needs the actions find and changeStream there.",
            stream_grant(config),
        )


def _opened(client: Client, config: MongoDbConfig) -> Iterator[Finding]:
    """Open the change stream: not all that speaks the protocol has one on all that is asked for."""
    try:
        can_start_stream(client, config, build_start_option(MongoPosition(now_of(client))))
    except PrerequisiteError as e:
        yield Finding(e.message, e.remedy or "")
    except driver.OperationFailure as e:
        error = translate_error(e, config)
        if not isinstance(error, TerminalError):
            raise
        yield Finding(f"The change stream cannot be opened: {error.message}", error.remedy or "")


def _listed(client: Client, config: MongoDbConfig) -> Iterator[TableId]:
    filters = Filters(config)
    yield from (table for table, _ in list_visible_collections(client) if filters.is_table_listed(table))


def _none_captured(listed: list[TableId], config: MongoDbConfig) -> Iterator[Finding]:
    lists = {
        "collection.include.list": config.collection_include_list,
        "database.include.list": config.database_include_list,
    }
    named = [f"{name}={','.join(patterns)}" for name, patterns in lists.items() if patterns]
    if named and not listed:
        yield Finding(
            f"No collection that the account may see is captured: {' and '.join(named)} match none.",
            r"patterns match whole names, database.collection: to match all collections of shop, write shop\..*, or database.include.list=shop",
            fatal=False,
        )


def _out_of_scope(listed: list[TableId], config: MongoDbConfig) -> Iterator[Finding]:
    if not (config.collection_include_list or config.database_include_list):
        return  # without lists, everything in the scope is captured
    outside = [str(table) for table in listed if not config.in_scope(table)]
    if outside:
        yield Finding(
            f"The change stream on {config.capture_scope.value} {config.capture_target} does not contain "
            f"events of {', '.join(outside[:10])}.",
            "set capture.scope=deployment, or remove these collections from the include lists",
            fatal=False,
        )


def _without_documents(config: MongoDbConfig, deployment: Deployment) -> Iterator[Finding]:
    if not config.capture_mode.has_full_document and not deployment.has_expanded_events:
        yield Finding(
            f"With capture.mode={config.capture_mode.value}, updates do not contain the whole document, and this "
            "server does not report disambiguatedPaths (available from MongoDB 6.0 on): if a document has field "
            "names that contain dots, or an update may have created one, tables reject the update.",
            "set capture.mode=change_streams_update_full, if changes are applied to tables",
            fatal=False,
        )


def _images(
    client: Client, config: MongoDbConfig, deployment: Deployment, captured: list[TableId]
) -> Iterator[Finding]:
    needs = config.capture_mode.pre_image or config.capture_mode_full_update_type is FullUpdateType.POST_IMAGE
    if not needs or not deployment.can_record_images:
        return
    for database in sorted({table.namespace for table in captured}):
        options = options_of(client, database)
        for table in captured:
            if table.namespace != database:
                continue
            if not options.get(table.name, {}).get("changeStreamPreAndPostImages", {}).get("enabled"):
                yield Finding(
                    f"{table} does not record document images, which "
                    f"capture.mode={config.capture_mode.value} requires.",
                    f'db.getSiblingDB("{database}").runCommand({{collMod: "{table.name}", changeStreamPreAndPostImages: {{enabled: true}}}})',
                )


def _signals(client: Client, config: MongoDbConfig) -> Iterator[Finding]:
    if config.signal_data_collection is None:
        return
    database, collection = parts_of(config.signal_data_collection)
    table = TableId(namespace=database, name=collection)
    if table not in dict(list_visible_collections(client)):
        yield Finding(
            f"The collection {table}, which signal.data.collection names, does not exist, or the account may "
            "not see it.",
            f'db.getSiblingDB("{database}").createCollection("{collection}")',
            fatal=False,
        )
    from airflow_provider_cdc.core.incremental.incremental_coordinator import (
        writes_watermarks,  # loads the modules that make events
    )

    if writes_watermarks(config) and not Privileges(client).allows_actions(database, collection, ("insert", "remove")):
        yield Finding(
            f"User {config.mongodb_user} may not write to {table}: incremental snapshots insert and delete "
            "documents there.",
            write_grant(config, database),
            fatal=False,
        )


def _oplog(client: Client, config: MongoDbConfig, deployment: Deployment) -> Iterator[Finding]:
    window = oplog_window(client)
    if window is None and not deployment.is_sharded:  # a router shows that of no shard
        yield Finding(
            f"User {config.mongodb_user} may not read the oplog, so the connector cannot report how far back "
            "the oplog goes, and how close the position is to being lost.",
            oplog_grant(config),
            fatal=False,
        )
    if window is not None and not window.complete and window.window_hours < SHORT_HOURS:
        yield Finding(
            f"The oplog goes back {window.window_hours:,.1f} hours: a connector that is stopped for longer "
            "loses its position.",
            "db.adminCommand({replSetResizeOplog: 1, minRetentionHours: 48})",
            fatal=False,
        )
