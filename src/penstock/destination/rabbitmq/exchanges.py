"""The exchange that a pipeline sends to: making it, and finding out what the user may do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pika
from pika.exceptions import ChannelClosedByBroker

from penstock.destination.rabbitmq.failures import FAILURES, failure, unavailable
from penstock.destination.rabbitmq.links import BrokerLink, LinkLost, parameters
from penstock.destination.rabbitmq.options import RabbitOptions
from penstock.model.errors import DestinationError

_NOT_FOUND, _NOT_FITTING = 404, 406
_ANSWER_SECONDS = 10.0


def declare(options: RabbitOptions, name: str) -> None:
    """Let it be there. Raises DestinationError where it is another one, or may not be made."""
    with _channel(options) as channel, _explained(f"declaring exchange {name}"):
        channel.exchange_declare(name, options.exchange_type, durable=True)


def expect(options: RabbitOptions, name: str) -> None:
    """Raise DestinationError unless it is there."""
    if not _is_there(options, name):
        raise DestinationError(
            f"destination rabbitmq: exchange {name} does not exist",
            remedy="declare it, or let Penstock do so with destination.declare: true",
        )


def check(options: RabbitOptions, name: str) -> list[str]:
    """Raise DestinationError where the server cannot be reached or refuses the exchange to the
    user. Makes nothing, sends nothing; says what else may surprise.
    """
    if not _is_there(options, name):
        if not options.declare:
            expect(options, name)
        return [f"exchange {name} does not exist yet: it is declared at the start"]
    _try_to_write(options, name)
    return []


def _is_there(options: RabbitOptions, name: str) -> bool:
    with _channel(options) as channel:
        try:
            channel.exchange_declare(name, passive=True)
        except ChannelClosedByBroker as error:
            if error.reply_code == _NOT_FOUND:
                return False
            raise failure(error, f"asking for exchange {name}") from None
        except FAILURES as error:
            raise failure(error, f"asking for exchange {name}") from None
    return True


def _try_to_write(options: RabbitOptions, name: str) -> None:
    """Send what the server refuses in any case, after it has looked at the user's rights. Raises
    DestinationUnavailable where it takes nothing at the moment.
    """
    never = pika.BasicProperties(expiration="penstock asks whether it may write")
    doing = f"writing to exchange {name}"
    answers: list[object] = []
    refused: BaseException | None = None
    deadline = time.monotonic() + _ANSWER_SECONDS
    link = BrokerLink(options)
    link.answered = lambda *answer: answers.append(answer)
    try:
        link.publish(name, "penstock.check", b"", never)
        while not answers and link.blocked is None and time.monotonic() < deadline:
            link.turn(_ANSWER_SECONDS)
    except LinkLost as lost:
        refused = lost.args[0]
    finally:
        # One that blocks its publishers may answer once more, but then it reads nothing.
        link.close()
    if link.blocked is not None or (refused is None and not answers):
        raise unavailable(
            f"destination rabbitmq: {doing} failed: the server does not answer",
            blocked=link.blocked,
        )
    # It looks at rights first, and at what expires when then.
    is_allowed = isinstance(refused, ChannelClosedByBroker) and refused.reply_code == _NOT_FITTING
    if refused is not None and not is_allowed:
        raise failure(refused, doing)


@contextmanager
def _channel(options: RabbitOptions) -> Iterator[Any]:
    """One for questions. The server ends it with the first that it refuses."""
    with _explained("connecting"):
        connection = pika.BlockingConnection(
            [parameters(options, each) for each in options.addresses]
        )
    try:
        with _explained("opening a channel"):
            channel = connection.channel()
        yield channel
    finally:
        if connection.is_open:
            connection.close()


@contextmanager
def _explained(doing: str) -> Iterator[None]:
    try:
        yield
    except FAILURES as error:
        raise failure(error, doing) from None
