"""What a destination promises and its source cannot give."""

from __future__ import annotations

from penstock.config.kafka_source import KafkaPipelineConfig
from penstock.config.models import PipelineConfig
from penstock.destination.contract import Destination
from penstock.model.errors import ConfigError


def check_promises(config: PipelineConfig, destination: Destination) -> None:
    """Raises ConfigError where readers of the destination rely on whole transactions, and topics do
    not tell where one ends. Called by `check` and at the start of each run.
    """
    if not isinstance(config, KafkaPipelineConfig) or not destination.capabilities.atomic:
        return
    if config.source.transaction_topic is not None:
        # What is of no transaction is refused when it comes, unless split_transactions accepts it.
        return
    if config.source.split_transactions == "refuse":
        raise ConfigError(
            f"destination {destination.name} promises its readers whole transactions, and a kafka "
            "source does not have them: rows of one transaction stand in several partitions, and "
            "nothing tells when all of them were read",
            remedy="set source.split_transactions to accept, if readers may see a part of a "
            "transaction for a while; where Debezium marks transactions, name its transaction "
            "topic (source.transaction_topic); or read the database itself (source.url)",
        )
