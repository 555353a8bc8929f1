"""What a log that is filled from topics was made from."""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, replace

from penstock.changelog.changelog import ChangeLog, Listing
from penstock.model.errors import IdentityChanged, LogError
from penstock.source.kafka.offsets import Offsets

FILE = "kafka_source.json"
DATABASE = "kafka"
"""Stands where the name of a database would."""


@dataclass(frozen=True)
class TopicsIdentity:
    """Made with the log. ``uuid`` tells it from every other log of the same topics: positions of
    the one mean nothing in the other.
    """

    uuid: str
    cluster_id: str
    group: str
    format: str
    transaction_topic: str | None = None

    @property
    def tag(self) -> str:
        """What stands beside the offsets that are committed to the group."""
        return f"penstock {self.uuid}"


def claim(
    log: ChangeLog,
    cluster_id: str,
    group: str,
    message_format: str,
    transaction_topic: str | None = None,
) -> tuple[TopicsIdentity, bool]:
    """The log's identity, and whether this call made it. Raises IdentityChanged where the log was
    made from something else.

    Whoever puts transactions together may stop doing so, and cannot begin again: what was taken
    meanwhile is of transactions whose ends are still to be read.
    """
    mine = TopicsIdentity(uuid.uuid4().hex, cluster_id, group, message_format, transaction_topic)
    if log.root.create(FILE, json.dumps(asdict(mine), indent=1).encode()):
        return mine, True
    known = read(log)
    if known is None:
        raise LogError(f"{log.root.full(FILE)} went away while it was read", remedy="try again")
    if not log.root.exists("log.json"):
        # Nothing was read yet: the file may still be put right.
        mine = replace(mine, uuid=known.uuid)
        log.root.write(FILE, json.dumps(asdict(mine), indent=1).encode(), durable=True)
        return mine, False
    for what, then, now, remedy in (
        (
            "the cluster",
            known.cluster_id,
            cluster_id,
            "Point source.brokers at the cluster that it was.",
        ),
        ("the group", known.group, group, f"Set source.group to {known.group}."),
        ("the format", known.format, message_format, f"Set source.format to {known.format}."),
    ):
        if then != now:
            raise IdentityChanged(
                f"The change log in {log.root.path} was filled from topics of {what} {then}, and "
                f"the pipeline file now means {what} {now}: offsets of the one mean nothing in "
                "the other.",
                remedy=f"{remedy} Or begin anew: `penstock destroy FILE`, then `penstock run "
                "FILE`, which reads all topics from their beginning.",
            )
    if known.transaction_topic != transaction_topic:
        if transaction_topic is not None:
            then = known.transaction_topic or "none"
            raise IdentityChanged(
                f"The change log in {log.root.path} was filled with the transaction topic {then}, "
                f"and the pipeline file now names {transaction_topic}: rows were taken already of "
                "transactions whose ends it would wait for.",
                remedy="Put source.transaction_topic back to what it was"
                + ("" if known.transaction_topic else " (remove it)")
                + ". Or begin anew: `penstock destroy FILE`, then `penstock run FILE`, which reads "
                "all topics from their beginning.",
            )
        known = replace(known, transaction_topic=None)
        log.root.write(FILE, json.dumps(asdict(known), indent=1).encode(), durable=True)
    return known, False


def read(log: ChangeLog) -> TopicsIdentity | None:
    data = log.root.read_bytes(FILE)
    if data is None:
        return None
    try:
        return TopicsIdentity(**json.loads(data))
    except (ValueError, TypeError) as error:
        raise LogError(
            f"{log.root.full(FILE)} is torn or altered: {error}",
            remedy="restore it from a backup, or start over with `penstock destroy FILE` and "
            "`penstock run FILE`",
        ) from None


def stored_offsets(log: ChangeLog, listing: Listing | None = None) -> Offsets | None:
    """Where the log's last segment stands; None for a log without segments. Who goes on there says
    what it has listed: what a dead writer sent may have arrived since.
    """
    listing = listing or log.list()
    for name in reversed(listing.segments):
        source = log.read(str(name)).source
        if source:
            return Offsets.from_json(source)
    if listing.segments:
        raise LogError(
            f"the change log in {log.root.path} does not say up to which offsets it was filled",
            remedy="it was not filled from topics: give this pipeline another change_log.path",
        )
    return None
