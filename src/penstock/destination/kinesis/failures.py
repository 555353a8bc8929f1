"""What the errors of AWS mean for a pipeline."""

from __future__ import annotations

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as BotoConnectionError

from penstock.model.errors import DestinationError, DestinationUnavailable

_RIGHTS = "grant the user or role the actions that docs/destinations/kinesis.md lists"
_CREDENTIALS = "see which credentials boto3 finds (environment, ~/.aws, the instance's role)"
_KEY = "see the key of AWS KMS that the stream is encrypted with, and the right to use it"
_LASTING = {
    "AccessDeniedException": _RIGHTS,
    "ResourceNotFoundException": "create the stream, or let Penstock do so with "
    "destination.streams.create: true",
    "ValidationException": "see the options of the destination",
    "InvalidArgumentException": "see the options of the destination",
    "UnrecognizedClientException": _CREDENTIALS,
    "InvalidSignatureException": _CREDENTIALS,
    "MissingAuthenticationTokenException": _CREDENTIALS,
    "IncompleteSignatureException": _CREDENTIALS,
    "ExpiredTokenException": _CREDENTIALS,
    "SubscriptionRequiredException": _CREDENTIALS,
    "KMSAccessDeniedException": _KEY,
    "KMSDisabledException": _KEY,
    "KMSInvalidStateException": _KEY,
    "KMSNotFoundException": _KEY,
    "KMSOptInRequired": _KEY,
}


def failure(error: ClientError | BotoCoreError, doing: str) -> DestinationError:
    """The error of a client as one of ours; what may pass by itself is DestinationUnavailable."""
    if isinstance(error, ClientError):
        answer = error.response["Error"]
        code = answer.get("Code", "")
        message = f"destination kinesis: {doing} failed: {answer.get('Message', '')} ({code})"
        if code in _LASTING:
            return DestinationError(message, remedy=_LASTING[code])
        return unavailable(message)
    message = f"destination kinesis: {doing} failed: {error}"
    if isinstance(error, BotoConnectionError | HTTPClientError):
        return unavailable(message)
    # No credentials, no region, a profile that is not there.
    return DestinationError(message, remedy=f"set destination.region, and {_CREDENTIALS}")


def unavailable(message: str) -> DestinationUnavailable:
    return DestinationUnavailable(
        message, remedy="see whether the endpoint can be reached, and whether the shards suffice"
    )
