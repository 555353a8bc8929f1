"""Breaks of deliveries over HTTP."""

from __future__ import annotations

from tests.sabotage.a_break import Break

_ALONE = "A receiver holds up nobody, and loses nothing"
_OUTSIDE = "Webhooks are signed, and stay outside"

BREAKS = (
    Break(
        name="webhook-position-before-answer",
        guarantee=_ALONE,
        without="A subscription's position passes events that its receiver has not taken.",
        file="destination/webhooks/delivery/worker.py",
        edits=(
            (
                "        if self._pending:\n            return next(iter(self._pending))\n",
                "",
            ),
        ),
        noticed_by=(
            (
                "integration/test_webhooks_delivery.py",
                "test_who_never_answers_is_paused_and_loses_nothing",
            ),
        ),
    ),
    Break(
        name="webhook-private-addresses",
        guarantee=_OUTSIDE,
        without="A URL may lead to any address of the network that Penstock is in.",
        file="destination/webhooks/guard.py",
        edits=(("        if not self.permits(str(address[0])):\n", "        if False:\n"),),
        noticed_by=(
            ("unit/test_webhook_guard.py", "test_a_name_that_means_a_private_address_is_refused"),
        ),
    ),
    Break(
        name="webhook-other-signature",
        guarantee=_OUTSIDE,
        without="Receivers cannot tell our events from a stranger's.",
        file="destination/webhooks/signing.py",
        edits=(('f"{message_id}.{timestamp}.".encode() + body', "body"),),
        noticed_by=(("unit/test_webhook_guard.py", "test_signatures_are_those_of_the_standard"),),
    ),
)
