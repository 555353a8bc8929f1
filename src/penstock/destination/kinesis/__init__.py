"""``kinesis``: every change as a record, in order partition key by partition key."""

from penstock.destination.kinesis.destination import KinesisDestination
from penstock.destination.kinesis.options import KinesisOptions

__all__ = ["KinesisDestination", "KinesisOptions"]
