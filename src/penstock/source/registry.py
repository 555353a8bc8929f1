"""The source that a pipeline file asks for. Each loads no more than what is asked of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.kafka_source import KafkaPipelineConfig
from penstock.config.models import PipelineConfig
from penstock.model.errors import ConfigError

if TYPE_CHECKING:
    from penstock.model.topic_status import TopicStatus
    from penstock.source.capture.stop import Stop
    from penstock.source.contract import Source
    from penstock.source.postgres.preflight.all_checks import CheckResult
    from penstock.source.postgres.source_status import SourceStatus


def make_source(config: PipelineConfig) -> Source:
    """Not connected yet. Raises ConfigError where a package is missing that the source needs."""
    if not isinstance(config, KafkaPipelineConfig):
        from penstock.source.postgres.source import PostgresSource

        return PostgresSource(config)
    expect_kafka()
    from penstock.source.kafka.source import KafkaSource

    return KafkaSource(config)


def capture_topics(config: KafkaPipelineConfig, stop: Stop, *, stands_by: bool) -> None:
    """Fill the change log from topics until ``stop``."""
    expect_kafka()
    from penstock.source.kafka.capture import run_capture

    run_capture(config, stop, stands_by=stands_by)


def source_checks(config: PipelineConfig) -> list[CheckResult]:
    """Every check of the source and the change log, with its result. Reads only."""
    from penstock.source.postgres.preflight.all_checks import CheckResult, run_checks

    if not isinstance(config, KafkaPipelineConfig):
        return run_checks(config)
    try:
        expect_kafka()
    except ConfigError as error:
        return [CheckResult("source kafka", "failed", error.message, error.remedy)]
    from penstock.source.kafka import checks

    return checks.run_checks(config)


def read_status(config: PipelineConfig) -> SourceStatus | TopicStatus:
    """How the pipeline stands in its source, for `penstock status`."""
    if not isinstance(config, KafkaPipelineConfig):
        from penstock.source.postgres.connect import connect
        from penstock.source.postgres.source_status import read_source_status

        with connect(config.source.url, application_name=f"penstock {config.name} status") as conn:
            return read_source_status(conn, config.name)
    expect_kafka()
    from penstock.source.kafka.topic_status import read_topic_status

    return read_topic_status(config)


def forget_group(config: KafkaPipelineConfig) -> list[str]:
    """Remove what the pipeline has committed to its consumer group; says what was removed."""
    expect_kafka()
    from penstock.source.kafka.client import Brokers, group_name

    group = group_name(config.source, config.name)
    return [f"consumer group {group}"] if Brokers(config.source).forget_group(group) else []


def expect_postgres(config: PipelineConfig, command: str) -> None:
    """Raise ConfigError where a command is about a database, and the source is none."""
    if isinstance(config, KafkaPipelineConfig):
        raise ConfigError(
            f"`penstock {command}` is for a Postgres source; this pipeline reads topics.",
            remedy="docs/sources/kafka.md says which commands there are for a kafka source.",
        )


def expect_kafka() -> None:
    """Raise ConfigError where the client of Kafka is not installed."""
    try:
        import confluent_kafka  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"source.type: the source kafka needs the package {error.name}, which is not installed",
            remedy="install it, as with: pip install 'penstock[kafka]'",
        ) from None
