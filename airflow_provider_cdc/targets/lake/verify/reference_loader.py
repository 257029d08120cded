"""References of a comparison: a change log as it is, or references by a plan with the changes captured since."""

from __future__ import annotations

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reading.pending_batches import collect_topics
from airflow_provider_cdc.core.errors import ConfigError, TransientError
from airflow_provider_cdc.targets.lake.verify.source_reference import SourceReference
from airflow_provider_cdc.verify.batches_after_reference import BatchesAfterReference
from airflow_provider_cdc.verify.verification_documents import VerificationPlan


def at_rest(changelog: ChangeLog, connector: str) -> dict[str, SourceReference]:
    """Return for each topic the reference of its tables, where no changes follow the reference.

    :param connector: the reference's name
    :raises ConfigError: the reference is empty
    """
    contents = [manifest.batch_contents for manifest in changelog.read_manifests(connector)]
    topics = collect_topics(changelog, contents)
    if not topics:
        raise _nothing(changelog, connector)
    position = contents[-1].position
    return {topic: SourceReference(pending, changelog, connector, position) for topic, pending in topics.items()}


def load_plan_references(changelog: ChangeLog, plan: VerificationPlan, source: ChangeLog) -> dict[str, SourceReference]:
    """Return the rows to compare with by a plan.

    :param changelog: of the references
    :param source: the change log that the plan names
    :raises ConfigError: there is nothing to compare with
    :raises TransientError: a part of a reference was deleted
    """
    topics: dict[str, SourceReference] = {}
    for point in plan.references:
        contents = [manifest.batch_contents for manifest in changelog.read_manifests(point.name)]
        if len(contents) != point.batches:
            raise TransientError(
                f"The scratch change log has {len(contents)} of the {point.batches} batches that were written to it.",
                where=f"{changelog.storage.url}, {point.name}",
                safe="No table was changed.",
                remedy="run the verification again, and make sure that its scratch change log is not deleted meanwhile",
            )
        by_topic = collect_topics(changelog, contents)
        since = BatchesAfterReference(source, plan.connector, point.first, straddles=point.straddles)
        topics |= {
            topic: SourceReference(by_topic[topic], changelog, point.name, point.position, since, point.at)
            for topic in point.topics
            if topic in by_topic
        }
    if not topics and not plan.not_compared:
        raise _nothing(changelog, plan.connector)
    return topics


def _nothing(changelog: ChangeLog, connector: str) -> ConfigError:
    return ConfigError(
        f"Nothing to verify against: the change log has no table of connector {connector}.",
        where=changelog.storage.url,
        remedy="capture the reference first: the same connector under another name with snapshot.mode=initial_only",
    )
