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
        name="webhook-another-folder",
        guarantee=_ALONE,
        without="Who delivers does not look whether the outbox is the driver's: what is committed "
        "is missing there, and every subscription is given up.",
        file="destination/webhooks/delivery/deliverer.py",
        edits=(("        if driver and not is_of(", "        if False and not is_of("),),
        noticed_by=(
            (
                "unit/test_webhook_deliverer.py",
                "test_another_folder_than_the_drivers_is_refused",
            ),
        ),
    ),
    Break(
        name="webhook-refused-outbox-pauses",
        guarantee=_ALONE,
        without="Where the outbox's place refuses to be read, each subscription that is behind is "
        "paused, and stays so.",
        file="destination/webhooks/delivery/deliverer.py",
        edits=(
            (
                """            except (DestinationError, LogError) as error:
                self._refused = error
                self.woken.set()
                return
""",
                "",
            ),
        ),
        noticed_by=(
            (
                "unit/test_webhook_deliverer.py",
                "test_a_place_that_refuses_ends_deliveries_and_no_subscription",
            ),
        ),
    ),
    Break(
        name="webhook-missing-file-passed",
        guarantee=_ALONE,
        without="Who has taken all before steps over a file that is gone, and nobody hears of it.",
        file="destination/webhooks/delivery/deliverer.py",
        edits=(("            elif is_awaited:\n", "            elif False:\n"),),
        noticed_by=(
            (
                "unit/test_webhook_deliverer.py",
                "test_a_missing_file_is_stepped_over_by_nobody",
            ),
        ),
    ),
    Break(
        name="webhook-disabled-by-way-of-a-pause",
        guarantee=_ALONE,
        without="A subscription that nothing was kept for is paused and resumed, with a gap.",
        file="destination/webhooks/subscriptions.py",
        edits=(('row[0] == "disabled"', 'row[0] == "gone"'),),
        noticed_by=(
            (
                "integration/test_webhooks_delivery.py",
                "test_gone_disables_and_nothing_is_kept_for_it",
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
    Break(
        name="webhook-gap-behind-filter",
        guarantee=_ALONE,
        without="Events behind some that a filter could not be asked about are delivered, and "
        "whoever gets them sees no gap.",
        file="destination/webhooks/outbox_index.py",
        edits=((" if file.view not in unfit", ""),),
        noticed_by=(
            (
                "integration/test_webhooks_delivery.py",
                "test_a_filter_whose_column_goes_ends_its_subscription_behind_what_was_encoded",
            ),
        ),
    ),
)
