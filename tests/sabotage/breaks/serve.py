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
    Break(
        name="killed-operation-is-called-done",
        guarantee="What is asked of the server happens once, and as it says",
        without="An operation that ended without a word counts as one that succeeded.",
        file="serve/supervise/jobs.py",
        edits=(
            (
                'state = "succeeded" if code == 0 else "failed"',
                'state = "succeeded" if code in (0, None) else "failed"',
            ),
        ),
        noticed_by=(
            (
                "unit/test_serve_jobs.py",
                "test_one_that_was_killed_after_a_restart_of_the_server_has_failed",
            ),
        ),
    ),
    Break(
        name="half-a-request-is-carried-out",
        guarantee="What is asked of the server happens once, and as it says",
        without="A request whose body never came is taken for one without a body.",
        file="serve/safety/exchange.py",
        edits=(('if message["type"] == "http.disconnect":', "if False:"),),
        noticed_by=(
            ("unit/test_serve_guard.py", "test_a_request_that_breaks_off_is_not_carried_out"),
        ),
    ),
    Break(
        name="keys-are-forgotten-with-the-server",
        guarantee="What is asked of the server happens once, and as it says",
        without="A server that starts anew does again what a client asks for again.",
        file="serve/api/replays.py",
        edits=(
            (
                "if kept is not None:\n                self._kept",
                "if False:\n                self._kept",
            ),
        ),
        noticed_by=(("unit/test_serve_replays.py", "test_the_next_server_gives_the_first_answer"),),
    ),
    Break(
        name="open-pages-outlive-their-session",
        guarantee="A session that has ended shows nothing",
        without="A page that is open shows rows to who is not signed in any more.",
        file="serve/page/acting.py",
        edits=(("if not self.is_signed_in:", "if False:"),),
        noticed_by=(
            (
                "unit/test_serve_acting.py",
                "test_nothing_is_read_for_who_is_not_signed_in_any_more",
            ),
        ),
    ),
)
