"""``kafka``: every change as a message, in order lane by lane."""

from penstock.destination.kafka.destination import KafkaDestination
from penstock.destination.kafka.options import KafkaOptions

__all__ = ["KafkaDestination", "KafkaOptions"]
