"""A bound on how many tables a connector may capture (Debezium MySQL connector, ``guardrail.collections.max``).

Only captured tables have a schema history here, so the bound is on both.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.config.property_enums import TableLimitAction
from airflow_provider_cdc.core.errors import PrerequisiteError
from airflow_provider_cdc.core.model.table_schema import TableId

log = logging.getLogger(__name__)

_SHOWN = 5


def check_table_limit(config: ConnectorConfig, captured: Callable[[], Collection[TableId]]) -> None:
    """Check the number of captured tables.

    :param captured: returns them; called only if there is a bound
    :raises PrerequisiteError: there are more than allowed, and ``guardrail.collections.limit.action=fail``
    """
    limit = config.guardrail_collections_max
    tables = captured() if limit else ()
    if len(tables) <= limit:
        return
    names = sorted(map(str, tables))
    some = ", ".join(names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")
    problem = f"{len(names)} tables are captured, more than the limit guardrail.collections.max={limit}: {some}"
    if config.guardrail_collections_limit_action is TableLimitAction.WARN:
        log.warning("%s.", problem)
        return
    raise PrerequisiteError(
        f"{problem}.",
        safe="Nothing was read; the offset is untouched.",
        remedy=f"include fewer tables in {config.TABLES[0]}, raise guardrail.collections.max, or set guardrail.collections.limit.action=warn",
    )
