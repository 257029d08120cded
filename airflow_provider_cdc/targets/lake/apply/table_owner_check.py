"""Checks the owner of a table: the apply writes to no table or folder of another owner.

From its first commit on, a table names its connector and topic.
"""

from __future__ import annotations

import logging

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import APPS, NEVER, Owner
from airflow_provider_cdc.targets.lake.formats.target_interface import Target
from airflow_provider_cdc.targets.lake.formats.target_roles import TargetIdentity

log = logging.getLogger("airflow_provider_cdc.targets.lake.apply.table_owner_check")


def applied_batch(target: Target, owner: Owner, *, adopt: bool = False) -> int | None:
    """Return the last batch of the owner's table.

    It is :data:`NEVER` if none was applied to it, ``None`` if there is no table.

    :param adopt: take over a table that has another owner; its rows do not count
    :raises TargetError: the content there has another owner, or cannot be caught up
    """
    if not target.exists():
        foreign_content = target.find_foreign_content(owner)
        if not foreign_content:
            return None
        if not target.exists():  # another run may have made the table since the first look
            raise _refused(
                target,
                owner,
                f"The table does not exist, but {foreign_content}",
                "move it away, or give tables another location",
            )
    there, markers = target.read_owner(), target.read_markers()
    if owner.application_name in markers and (how := target.set_back(owner.application_name)):
        raise TargetError(
            f"The table was restored to a state before batch {markers[owner.application_name]} ({how}), but its marker still names this batch.",
            where=f"{target.location} ({owner})",
            safe="The table was not changed; the change log keeps the batches.",
            remedy="move the table away and run the apply again, which rebuilds it from the change log; or, after moving it away, "
            'snapshot the source table again with "replace": true',
        )
    if there != owner.recorded_owner:
        _check_free(target, owner, there, markers, adopt=adopt)
        target.record_owner(owner)
    return markers.get(owner.application_name, NEVER)


def _check_free(
    target: TargetIdentity, owner: Owner, there: Owner | None, markers: dict[str, int], *, adopt: bool
) -> None:
    """Check that a table may be taken over.

    :param there: its present owner
    """
    has_batches = owner.application_name in markers
    if owner.is_but_for_its_log(there) or owner.recorded_owner.is_but_for_its_log(there):
        if has_batches or owner.shared or not adopt:
            raise another_log(target, owner, there, adopts=not has_batches and not owner.shared)
        log.warning("The table at %s is adopted for %s: it was built from another change log.", target.location, owner)
        return
    others = sorted(app.removeprefix(APPS) for app in markers if app.startswith(APPS) and app != owner.application_name)
    if has_batches:
        whose = "this connector and of others" if there or others else "this connector"
        raise _refused(
            target, owner, f"The table belongs to {there or 'no connector'}, but contains batches of {whose}",
            "move the table away and run the apply again, which rebuilds it from the change log",
        )  # fmt: skip
    if not adopt:
        whose = (
            f"belongs to {there}"
            if there
            else f"contains batches of {others[0]}"
            if others
            else "does not belong to a connector"
        )
        raise _refused(
            target, owner, f"The table {whose}",
            f"give the tables of this connector another location, or move the table away; or, if its rows may be replaced, use "
            f"--adopt '{owner.topic}' (adopt=[{owner.topic!r}] in Airflow) for one run",
        )  # fmt: skip
    log.warning(
        "The table at %s is adopted for %s. Its previous owner was %s.",
        target.location,
        owner,
        there or "another writer",
    )


def another_log(target: TargetIdentity, owner: Owner, there: Owner | None, *, adopts: bool = False) -> TargetError:
    """Build the error for a table of this connector that was made from another change log.

    :param there: the owner that the table records
    :param adopts: whether the table may be adopted
    """
    table_log, now = (recorded.changelog if recorded is not None else "" for recorded in (there, owner))
    adopt = (
        f", or, if its rows may be replaced, use --adopt '{owner.topic}' (adopt=[{owner.topic!r}] in Airflow) for one run"
        if adopts
        else ""
    )
    return TargetError(
        f"The table was built from another change log of {owner.connector} ({table_log}) than the present one "
        f"({now or 'it has no batch'}), which was started again or replaced the earlier one: batch numbers "
        "do not show which changes the table lacks.",
        where=f"{target.location} ({owner})",
        safe="The table was not changed; the change log keeps the batches.",
        remedy=f"restore the other change log, with the state tables; or, if it is lost for good, move the table away and run the apply again, which rebuilds it "
        f"from the existing batches{adopt}",
    )


def put_back(target: TargetIdentity, owner: Owner, batch: int) -> TargetError:
    """Build the error for a table whose last batch is another one in the change log by now."""
    return TargetError(
        f"The table is at batch {batch}, but the change log now has another batch with this number: it was restored to an earlier state and continued "
        "from there. Batch numbers do not show which changes the table lacks.",
        where=f"{target.location} ({owner})",
        safe="The table was not changed; the change log keeps the batches.",
        remedy="move the table away and run the apply again, which rebuilds it from the existing batches",
    )


def _refused(target: TargetIdentity, owner: Owner, why: str, remedy: str) -> TargetError:
    return TargetError(
        f"{why}. The apply writes only to its own tables and folders.",
        where=f"{target.location} (for {owner})",
        safe="Nothing was changed there; the change log keeps the batches.",
        remedy=remedy,
    )
