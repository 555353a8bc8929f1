"""Everything that must hold before topics can be read, checked without changing anything."""

from __future__ import annotations

from penstock.changelog.changelog import ChangeLog
from penstock.config.kafka_source import KafkaPipelineConfig
from penstock.model.errors import PenstockError, SourceError
from penstock.source.kafka.client import Brokers, Topic, group_name, wants_topic
from penstock.source.kafka.identity import read, stored_offsets
from penstock.source.kafka.offsets import Offsets, Partition
from penstock.source.kafka.topic_set import TopicSet
from penstock.source.postgres.connect import connect
from penstock.source.postgres.preflight.all_checks import CheckResult, check_change_log


def run_checks(config: KafkaPipelineConfig) -> list[CheckResult]:
    """Every check with its result, in order; an expected failure is a result."""
    return [
        _store(config),
        *_topics(config),
        check_change_log(config.change_log),
    ]


def _store(config: KafkaPipelineConfig) -> CheckResult:
    try:
        connect(config.source.url, application_name=f"penstock {config.name} check").close()
    except SourceError as error:
        return CheckResult("store", "failed", error.message, error.remedy)
    return CheckResult("store", "passed", f"connected to {config.source.url}")


def _topics(config: KafkaPipelineConfig) -> list[CheckResult]:
    source = config.source
    try:
        brokers = Brokers(source)
        found = brokers.topics()
    except PenstockError as error:
        return [CheckResult("brokers", "failed", error.message, error.remedy)]
    results = [CheckResult("brokers", "passed", f"connected to {source.brokers}")]
    checks = (_named, _schema_topic, _transaction_topic, _same_topics, _group)
    for check in checks:
        try:
            results.append(check(config, brokers, found))
        except PenstockError as error:
            name = check.__name__.strip("_").replace("_", " ")
            results.append(CheckResult(name, "failed", error.message, error.remedy))
    return results


def _named(config: KafkaPipelineConfig, _brokers: Brokers, found: dict[str, Topic]) -> CheckResult:
    topics = [name for name in found if wants_topic(config.source, name)]
    if topics:
        shown = ", ".join(sorted(topics)[:5]) + (" …" if len(topics) > 5 else "")
        return CheckResult("topics", "passed", f"{len(topics)} topics: {shown}")
    return CheckResult(
        "topics",
        "failed",
        f"there is no topic that source.topics names ({', '.join(config.source.topics[:5])})",
        "Write names of topics as they are; a pattern begins with ^ and matches whole names.",
    )


def _schema_topic(
    config: KafkaPipelineConfig, brokers: Brokers, found: dict[str, Topic]
) -> CheckResult:
    topic = config.source.schema_topic
    if topic is None:
        return CheckResult("schema topic", "skipped", "the messages tell what tables look like")
    if topic not in found:
        return CheckResult(
            "schema topic",
            "failed",
            f"there is no topic {topic}, in which tables are announced",
            "Set destination.announce to true in the pipeline that writes the topics, start it "
            "again, and name its schema_topic here.",
        )
    places = [Partition(topic, number) for number in range(found[topic].partitions)]
    if not any(brokers.bounds(places).values()):
        return CheckResult(
            "schema topic",
            "failed",
            f"topic {topic} is empty: no table was announced",
            "Set destination.announce to true in the pipeline that writes the topics, and start it "
            "again.",
        )
    return CheckResult("schema topic", "passed", f"{topic} tells of tables")


def _transaction_topic(
    config: KafkaPipelineConfig, _brokers: Brokers, found: dict[str, Topic]
) -> CheckResult:
    topic = config.source.transaction_topic
    if topic is None:
        return CheckResult("transaction topic", "skipped", "transactions are not put together")
    if topic not in found:
        return CheckResult(
            "transaction topic",
            "failed",
            f"there is no topic {topic}, in which Debezium marks transactions",
            "Set provide.transaction.metadata of the connector to true, and name its topic, which "
            "is made with the first transaction.",
        )
    if found[topic].partitions > 1:
        return CheckResult(
            "transaction topic",
            "failed",
            f"topic {topic} has {found[topic].partitions} partitions: ends of transactions stand "
            "in no order there",
            "Let Debezium mark transactions in a topic of one partition.",
        )
    return CheckResult("transaction topic", "passed", f"{topic} tells of transactions")


def _same_topics(
    config: KafkaPipelineConfig, brokers: Brokers, _found: dict[str, Topic]
) -> CheckResult:
    log = ChangeLog.of(config.change_log)
    offsets = stored_offsets(log) if log.root.exists("log.json") else None
    TopicSet(config.source, brokers, offsets or Offsets()).look(is_first=True)
    what = "nothing was read yet" if offsets is None else "the change log goes on in them"
    return CheckResult("same topics", "passed", f"no message is gone; {what}")


def _group(config: KafkaPipelineConfig, brokers: Brokers, _found: dict[str, Topic]) -> CheckResult:
    group = group_name(config.source, config.name)
    identity = read(ChangeLog.of(config.change_log))
    members = brokers.members(group)
    foreign = [
        str(place)
        for place, (_, beside) in brokers.committed(group).items()
        if identity is None or beside != identity.tag
    ]
    if members or foreign:
        who = ", ".join((members or foreign)[:3])
        return CheckResult(
            "consumer group",
            "failed",
            f"the consumer group {group} is another consumer's, or belongs to a change log that is "
            f"lost ({who})",
            "Set source.group to a name of this pipeline's own.",
        )
    return CheckResult("consumer group", "passed", f"{group} is this pipeline's own")
