"""Breaks of capture: positions, and what is confirmed to the slot."""

from __future__ import annotations

from tests.sabotage.a_break import Break

BREAKS = (
    Break(
        name="confirm-before-durable",
        guarantee="Nothing is lost",
        without="The slot is confirmed up to what was received, whatever the destination holds.",
        file="source/postgres/capture/session.py",
        edits=(
            (
                "confirmed = readers.held_lsn",
                "confirmed = self._assembler.frontier.end_lsn",
            ),
        ),
        noticed_by=(
            (
                "unit/test_capture_session.py",
                "test_what_is_only_in_memory_is_not_confirmed",
            ),
        ),
    ),
    Break(
        name="confirm-before-the-log-is-durable",
        guarantee="Nothing is lost",
        without="With `confirm: log` the slot is confirmed up to what is only in memory.",
        file="source/postgres/capture/session.py",
        edits=(
            (
                "confirmed = held.end_lsn if held else confirmed",
                "confirmed = self._stream.wal_end",
            ),
        ),
        noticed_by=(
            ("unit/test_capture_session.py", "test_what_is_only_in_memory_is_not_confirmed"),
        ),
    ),
    Break(
        name="commit-lsn-confirmed",
        guarantee="Nothing is lost",
        without="The beginning of the commit record is confirmed instead of its end.",
        file="source/postgres/capture/assemble.py",
        edits=(("int(big_endian(data, at + 10, 8)[0])", "int(big_endian(data, at + 2, 8)[0])"),),
        noticed_by=(("unit/test_assemble.py", "test_any_history_in_any_pieces_gives_its_changes"),),
    ),
    Break(
        name="recorded-before-the-commit",
        guarantee="Nothing is lost",
        without="Capture hears of a batch before the destination has committed it.",
        file="pipeline/run/batch_committer.py",
        edits=(
            (
                'failpoint("driver.before_commit")',
                "self.record.say(frontier, self._wanted_lsn, standing.source, durable=True)",
            ),
        ),
        noticed_by=(("unit/test_apply_batch.py", "test_capture_learns_of_a_commit_only_after_it"),),
    ),
    Break(
        name="fastest-table-confirmed",
        guarantee="Nothing is lost",
        without="What is confirmed is where most tables stand, not what every table holds.",
        file="model/watermarks.py",
        edits=(("return min([self.frontier, *self.behind.values()])", "return self.frontier"),),
        noticed_by=(
            ("unit/test_apply_batch.py", "test_what_is_confirmed_is_what_every_table_holds"),
        ),
    ),
    Break(
        name="slot-beyond-log-and-destination",
        guarantee="Nothing is lost",
        without="A slot that stands beyond log and destination is read on from, over the gap.",
        file="source/postgres/subscription/slot.py",
        edits=(
            (
                "state.confirmed_flush > expected_start:",
                "state.confirmed_flush < 0:",
            ),
        ),
        noticed_by=(("unit/test_slot.py", "test_refusals_name_slot_cause_and_remedy"),),
    ),
    Break(
        name="ordinals-count-descriptions",
        guarantee="In commit order",
        without="Relation messages, which each session gets again, are counted in positions: a "
        "change has another one after a restart.",
        file="source/postgres/capture/assemble.py",
        edits=(
            ("seen = np.cumsum(_CHANGES[op])", 'seen = np.cumsum(_CHANGES[op] | (op == ord("R")))'),
        ),
        noticed_by=(("unit/test_assemble.py", "test_any_history_in_any_pieces_gives_its_changes"),),
    ),
    Break(
        name="silent-server-not-asked",
        guarantee="Nothing hangs and looks healthy",
        without="Capture waits for ever for a server that says nothing.",
        file="source/postgres/capture/session.py",
        edits=(("if self._asked is None and now", "if self._asked is not None and now"),),
        noticed_by=(
            (
                "unit/test_capture_session.py",
                "test_a_server_that_is_silent_is_asked_and_then_given_up",
            ),
        ),
    ),
    Break(
        name="trouble-not-told",
        guarantee="Nothing hangs and looks healthy",
        without="A pipeline whose source, destination or disk is gone says that it is well.",
        file="metrics/health.py",
        edits=(("if now - since > LASTING_SECONDS and not reads:", "if now < since:"),),
        noticed_by=(("unit/test_health.py", "test_the_source_is_gone"),),
    ),
    Break(
        name="hanging-tasks-not-told",
        guarantee="Nothing hangs and looks healthy",
        without="A pipeline whose tasks hang says for ten minutes that it is well.",
        file="metrics/health.py",
        edits=(("if work is None or work != self._worked[1]:", "if work is None or work:"),),
        noticed_by=(("unit/test_health.py", "test_tasks_of_a_batch_hang"),),
    ),
    Break(
        name="slot-of-a-lost-machine-kept",
        guarantee="One writer",
        without="The walsender of a machine that is lost keeps the slot from its successor.",
        file="source/postgres/capture/process.py",
        edits=(("if insist and (ended", "if stop is None and (ended"),),
        noticed_by=(
            (
                "integration/test_slot_conditions.py",
                "test_what_a_lost_machine_left_of_capture_is_ended",
            ),
        ),
    ),
    Break(
        name="lost-session-keeps-its-locks",
        guarantee="Nothing hangs and looks healthy",
        without="The next commit waits for a transaction whose connection was given up.",
        file="source/postgres/answer_watch.py",
        edits=(("                        served.end()\n", ""),),
        noticed_by=(
            (
                "integration/test_silent_connections.py",
                "test_a_commit_whose_answer_was_lost_is_given_up_and_a_long_one_is_not",
            ),
        ),
    ),
    Break(
        name="log-without-a-limit",
        guarantee="A backlog is bounded and drains",
        without="Capture goes on beyond change_log.max_bytes while nobody reads.",
        file="source/capture/keeper.py",
        edits=(("if self._writer.total_bytes < self._limits.max_bytes:", "if self._writer:"),),
        noticed_by=(
            (
                "unit/test_capture_session.py",
                "test_a_full_log_takes_nothing_before_its_readers_go_on",
            ),
        ),
    ),
    Break(
        name="small-segments-for-nobody",
        guarantee="A backlog is bounded and drains",
        without="While the destination is away, a trickle of changes makes 40 segments a second.",
        file="source/postgres/capture/session.py",
        edits=(
            (" if self._is_quiet and self._is_followed else ends", " if self._is_quiet else ends"),
        ),
        noticed_by=(
            (
                "unit/test_capture_session.py",
                "test_a_log_that_nobody_follows_gets_no_small_segments",
            ),
        ),
    ),
    Break(
        name="worker-memory-creeps",
        guarantee="A backlog is bounded and drains",
        without="A worker keeps what each task leaves, as long as that is little.",
        file="spark/daemon.py",
        edits=(("rest = rest or now", "rest = now"),),
        noticed_by=(("unit/test_spark_daemon.py", "test_what_tasks_leave_is_given_back"),),
    ),
)
