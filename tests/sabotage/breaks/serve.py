"""What `penstock serve` keeps of what people did."""

from __future__ import annotations

from tests.sabotage.a_break import Break

BREAKS = (
    Break(
        name="strangers-push-commands-out",
        guarantee="What people did can be read later",
        without="Refused requests fill the file of commands, until the oldest are gone.",
        file="serve/safety/audit.py",
        edits=(
            (
                "self._commands, self._refused = commands, refusals",
                "self._commands = self._refused = commands",
            ),
        ),
        noticed_by=(
            ("integration/test_serve_hostile.py", "test_a_flood_of_refusals_pushes_no_command_out"),
        ),
    ),
)
