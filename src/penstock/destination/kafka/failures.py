"""What Kafka's errors mean for a pipeline."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from penstock.destination.kafka.troubles import Troubles
from penstock.model.errors import DestinationError, DestinationUnavailable

_RIGHTS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "the topic",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "the cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "the transactional id",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "the group",
}
_LASTING = {
    KafkaError._AUTHENTICATION: "the user or its password is wrong; see destination.client",
    KafkaError.SASL_AUTHENTICATION_FAILED: "the user or its password is wrong; see "
    "destination.client",
    KafkaError._SSL: "TLS failed; see the ssl settings in destination.client",
    KafkaError.MSG_SIZE_TOO_LARGE: "raise destination.max_message_bytes, and max.message.bytes of "
    "the topic",
    KafkaError.RECORD_LIST_TOO_LARGE: "lower destination.batch_bytes, or raise max.message.bytes "
    "of the topic",
    KafkaError.INVALID_REPLICATION_FACTOR: "set destination.topics.replication to at most the "
    "number of brokers",
    KafkaError.INVALID_CONFIG: "see destination.topics.config",
    KafkaError.POLICY_VIOLATION: "the cluster's policy forbids it; create the topic yourself",
    KafkaError._INVALID_ARG: "see destination.client",
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE: "set destination.compression to another one",
}
_UNREACHABLE = "see whether the brokers run and can be reached"


def failure(
    error: KafkaException, doing: str, troubles: Troubles | None = None
) -> DestinationError:
    """The error of a client as one of ours; what may pass by itself is DestinationUnavailable."""
    return failure_of(error.args[0], doing, troubles)


def failure_of(error: KafkaError, doing: str, troubles: Troubles | None = None) -> DestinationError:
    message = f"destination kafka: {doing} failed: {error.str()} ({error.name()})"
    code = error.code()
    if code in _RIGHTS:
        return DestinationError(message, remedy=f"grant the user the right to {_RIGHTS[code]}")
    if code in _LASTING:
        return DestinationError(message, remedy=_LASTING[code])
    return unavailable(message, None if troubles is None else troubles.behind(error))


def unavailable(message: str, cause: KafkaError | None) -> DestinationUnavailable:
    """What may pass by itself. Also where the cause looks lasting: so may a broker that starts."""
    if cause is None:
        return DestinationUnavailable(message, remedy=_UNREACHABLE)
    remedy = _LASTING.get(cause.code(), _UNREACHABLE)
    return DestinationUnavailable(f"{message}; at last: {cause.str()}", remedy=remedy)
