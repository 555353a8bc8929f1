"""What pika's errors mean for a pipeline."""

from __future__ import annotations

import ssl

from pika.adapters.utils.connection_workflow import (
    AMQPConnectionWorkflowFailed,
    AMQPConnectorException,
    AMQPConnectorPhaseErrorBase,
)
from pika.exceptions import (
    AMQPError,
    AuthenticationError,
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from penstock.model.errors import DestinationError, DestinationUnavailable

FAILURES = (AMQPError, AMQPConnectorException, OSError)
"""What pika raises, and gives to callbacks."""

_RIGHTS = "grant the user the rights that docs/destinations/rabbitmq.md lists, in this vhost"
_VHOST = "make the vhost (rabbitmqctl add_vhost) and let the user in (rabbitmqctl set_permissions)"
_USER = "the user or the password is wrong; see destination.url and destination.password"
_OF_CHANNELS = {
    403: _RIGHTS,
    404: "declare the exchange, or let Penstock do so with destination.declare: true",
    406: "the server holds something else under this name, or takes no such message; see the "
    "options of the destination",
    311: "lower destination.max_message_bytes to what the server takes (max_message_size)",
}
_OF_CONNECTIONS = {
    403: _USER,
    530: _VHOST,
    503: "see destination.exchange_type: the server knows no such type",
}


def failure(error: BaseException, doing: str) -> DestinationError:
    """An error of pika as one of ours; what may pass by itself is DestinationUnavailable."""
    cause = _cause(error)
    message = f"destination rabbitmq: {doing} failed: {_shown(cause)}"
    if isinstance(cause, ProbableAuthenticationError | AuthenticationError):
        return DestinationError(message, remedy=_USER)
    if isinstance(cause, ProbableAccessDeniedError):
        return DestinationError(message, remedy=_VHOST)
    if isinstance(cause, ssl.SSLError):
        return DestinationError(
            message, remedy="TLS failed; see destination.tls, and whether the port speaks TLS"
        )
    remedy = None
    if isinstance(cause, ChannelClosedByBroker):
        remedy = _OF_CHANNELS.get(cause.reply_code)
    elif isinstance(cause, ConnectionClosedByBroker):
        remedy = _OF_CONNECTIONS.get(cause.reply_code)
    return unavailable(message) if remedy is None else DestinationError(message, remedy=remedy)


def unavailable(message: str, *, blocked: str | None = None) -> DestinationUnavailable:
    """What may pass by itself. ``blocked``: why the server takes nothing, where it says so."""
    remedy = "see whether the server runs and can be reached; Penstock tries again"
    if blocked is not None:
        message = f"{message}; the server takes no messages: {blocked}"
        remedy = (
            "free memory or disk of the server (rabbitmqctl status shows its alarms): consumers "
            "that are away fill it; Penstock tries again"
        )
    return DestinationUnavailable(message, remedy=remedy)


def _cause(error: BaseException) -> BaseException:
    """What stands behind errors that only say in which step they came."""
    if isinstance(error, AMQPConnectionWorkflowFailed) and error.exceptions:
        return _cause(error.exceptions[-1])
    if isinstance(error, AMQPConnectorPhaseErrorBase):
        return _cause(error.exception)
    if error.args and len(error.args) == 1 and isinstance(error.args[0], BaseException):
        return _cause(error.args[0])
    return error


def _shown(error: BaseException) -> str:
    if isinstance(error, ChannelClosedByBroker | ConnectionClosedByBroker):
        return f"{error.reply_text} ({error.reply_code})"
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
