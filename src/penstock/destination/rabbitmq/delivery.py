"""Messages under way, until the server has confirmed every one."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from itertools import takewhile

from penstock.backoff import Backoff
from penstock.destination.rabbitmq.failures import failure, unavailable
from penstock.destination.rabbitmq.links import (
    BrokerLink,
    LinkLost,
    forget_links,
    keep_link,
    take_link,
)
from penstock.destination.rabbitmq.messages import Message, MessageRoutes
from penstock.model.errors import DestinationError, DestinationUnavailable

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 5.0
# So often the connection gets its turn while messages are handed over: many at a time are cheaper.
_TURN_MESSAGES = 256
_TURN_SECONDS = 1.0
# Those that wait behind others of their group must not keep the rest from being looked at.
_HELD_WINDOWS = 10


class RabbitDelivery:
    """Sends over one link at a time, many messages at once, of each group one: the next goes when
    the server has confirmed this one. So whatever the server refuses, loses or has twice, the
    messages of a group arrive in order.

    What it refused (nack), and what was under way when a connection was lost, is sent again after a
    pause, which grows while nothing gets through. Raises DestinationUnavailable where that was so
    for ``delivery_timeout``, and DestinationError for what does not pass by itself.
    """

    def __init__(self, routes: MessageRoutes) -> None:
        self._options = routes.options
        self._exchange = routes.exchange
        self._link: BrokerLink | None = None
        self._ready: deque[Message] = deque()
        self._under_way: dict[int, Message] = {}  # by delivery tag, which only rise
        self._behind: dict[int, deque[Message] | None] = {}  # of groups that have one before them
        self._refused: list[Message] = []
        self._again_at = 0.0
        self._held = self._held_bytes = 0
        self._backoff = Backoff(first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        self._moved = time.monotonic()
        self._trouble = "nothing was confirmed"
        self._lasting: DestinationError | None = None
        self.resent = 0
        self.unroutable = 0

    def hand_over(self, messages: Iterable[Message]) -> None:
        """Waits where as much is under way as may be."""
        for number, message in enumerate(messages, 1):
            if not self._held:
                self._moved = time.monotonic()
            self._held += 1
            self._held_bytes += len(message.body)
            if message.group in self._behind:
                waiting = self._behind[message.group]
                if waiting is None:
                    waiting = self._behind[message.group] = deque()
                waiting.append(message)
            else:
                self._behind[message.group] = None
                self._ready.append(message)
            if not number % _TURN_MESSAGES:
                self._work(0.0)
            while self._is_full:
                self._work(_TURN_SECONDS)

    def flush(self) -> None:
        """Return when everything has arrived."""
        while self._held:
            self._work(_TURN_SECONDS)
        if self._link is not None:
            keep_link(self._options, self._link)
            self._link = None

    def give_up(self) -> None:
        """Send nothing more."""
        if self._link is not None:
            self._link.abort()
            self._link = None
        forget_links(self._options)

    @property
    def _is_full(self) -> bool:
        most = self._options.max_unconfirmed
        return (
            len(self._ready) + len(self._under_way) >= most
            or self._held >= _HELD_WINDOWS * most
            or self._held_bytes > self._options.buffer_bytes
        )

    def _work(self, seconds: float) -> None:
        """Send what may go, and hear what the server says, for at most so long."""
        try:
            link = self._linked()
            self._send(link)
            link.turn(min(seconds, max(0.0, self._again_at - time.monotonic()) or seconds))
        except LinkLost as lost:
            self._on_lost(lost)
        if self._lasting is not None:
            raise self._lasting
        if time.monotonic() - self._moved > self._options.delivery_timeout and self._held:
            raise unavailable(
                f"destination rabbitmq: for {self._options.delivery_timeout:g} s nothing got "
                f"through to exchange {self._exchange}; at last: {self._trouble}",
                blocked=self._link.blocked if self._link is not None else None,
            )

    def _linked(self) -> BrokerLink:
        if self._link is None:
            try:
                self._link = take_link(self._options)
            except DestinationUnavailable as error:
                raise LinkLost(error) from None
            self._link.answered, self._link.returned = self._on_answer, self._on_return
        return self._link

    def _send(self, link: BrokerLink) -> None:
        if self._refused and time.monotonic() >= self._again_at:
            self._ready.extendleft(reversed(self._refused))
            self.resent += len(self._refused)
            self._refused = []
        while self._ready and len(self._under_way) < self._options.max_unconfirmed:
            message = self._ready[0]
            tag = link.publish(self._exchange, message.key, message.body, message.properties)
            self._under_way[tag] = self._ready.popleft()

    def _on_lost(self, lost: LinkLost) -> None:
        """Connect anew with the next turn, and send what was under way once more."""
        cause = lost.args[0]
        error = cause if isinstance(cause, DestinationError) else failure(cause, "sending")
        if not isinstance(error, DestinationUnavailable):
            raise error from None
        self._trouble = error.message
        if self._link is not None:
            self._link.abort()
            self._link = None
        self.resent += len(self._under_way)
        self._ready.extendleft(reversed(self._under_way.values()))
        self._under_way.clear()
        time.sleep(self._backoff.next_pause())

    def _on_answer(self, tag: int, multiple: bool, was_taken: bool) -> None:
        tags = list(takewhile(lambda each: each <= tag, self._under_way)) if multiple else [tag]
        for each in tags:
            message = self._under_way.pop(each)
            if was_taken:
                self._arrived(message)
            else:
                self._refused.append(message)
        if was_taken:
            self._moved = time.monotonic()
            self._backoff.start_over()
        else:
            self._trouble = "the server refused messages (nack): a queue is full or broken"
            self._again_at = time.monotonic() + self._backoff.next_pause()

    def _arrived(self, message: Message) -> None:
        self._held -= 1
        self._held_bytes -= len(message.body)
        waiting = self._behind[message.group]
        if waiting:
            self._ready.append(waiting.popleft())
        else:
            del self._behind[message.group]

    def _on_return(self, key: str) -> None:
        """No queue gets it; the server confirms it all the same."""
        self.unroutable += 1
        if self._options.unroutable == "error":
            self._lasting = DestinationError(
                f"destination rabbitmq: no queue gets messages that exchange {self._exchange} is "
                f"given with routing key {key!r}",
                remedy="bind a queue, as with `#` for all keys; or set destination.unroutable: "
                "count, which drops and counts such messages",
            )
