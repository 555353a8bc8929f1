"""Breaks of the change log: what is durable, what counts, what may go."""

from __future__ import annotations

from tests.sabotage.a_break import Break

BREAKS = (
    Break(
        name="segment-not-synced",
        guarantee="Nothing is lost",
        without="A segment counts as durable before its bytes have reached the disk.",
        file="changelog/storage/folder.py",
        edits=(("os.fsync(file.fileno())", "file.fileno()"),),
        noticed_by=(
            ("unit/test_storage.py", "test_what_is_durable_was_synced_before_it_has_its_name"),
        ),
    ),
    Break(
        name="left-segment-not-synced",
        guarantee="Nothing is lost",
        without="What a killed writer left counts, and is confirmed, before its name is on the "
        "disk.",
        file="changelog/writer.py",
        edits=(("        log.segments.settle()\n", ""),),
        noticed_by=(
            ("unit/test_storage.py", "test_what_a_writer_left_is_on_the_disk_before_it_counts"),
        ),
    ),
    Break(
        name="sessions-forget-what-is-passed",
        guarantee="A full disk is waited for",
        without="Where no session outlives the grace period nothing is removed, so that a full "
        "disk stays full.",
        file="source/capture/keeper.py",
        edits=(("limits.grace, filled.passed, late_writes", "limits.grace, late_writes"),),
        noticed_by=(
            (
                "unit/test_many_readers.py",
                "test_sessions_shorter_than_the_grace_period_clean_the_log_together",
            ),
        ),
    ),
    Break(
        name="altered-position",
        guarantee="Nothing is lost",
        without="A position is believed that is not what was written.",
        file="changelog/changelog.py",
        edits=(("                    _expect_sum(value)\n", ""),),
        noticed_by=(
            (
                "unit/test_changelog.py",
                "test_a_position_that_is_not_what_was_written_is_not_believed",
            ),
        ),
    ),
    Break(
        name="position-kept-once",
        guarantee="Nothing is lost",
        without="The position of a destination that remembers none is gone with one torn file.",
        file="changelog/changelog.py",
        edits=(("self._second_copies.write(file, data, durable=True)", "pass"),),
        noticed_by=(
            ("unit/test_changelog.py", "test_a_position_that_nobody_else_knows_is_kept_twice"),
        ),
    ),
    Break(
        name="log-readable-by-all",
        guarantee="What is on disk is its owner's alone",
        without="Files of the change log can be read by whoever the umask allows.",
        file="changelog/storage/folder.py",
        edits=(("mode = 0o600 if self._private else 0o666", "mode = 0o666"),),
        noticed_by=(
            ("unit/test_storage.py", "test_the_log_and_what_is_beside_it_is_its_owner_s_alone"),
        ),
    ),
    Break(
        name="full-disk-is-the-end",
        guarantee="A full disk is waited for",
        without="A change log without room for a moment ends the pipeline.",
        file="changelog/storage/folder.py",
        edits=(("return LogError if stays else LogUnavailable", "return LogError"),),
        noticed_by=(("unit/test_storage.py", "test_a_disk_without_room_is_worth_another_try"),),
    ),
    Break(
        name="clock-set-back-unseen",
        guarantee="A clock that jumps delays nothing",
        without="The next batch waits until the time of day is again what it was.",
        file="pipeline/run/stream_batches.py",
        edits=(
            ("began = time.monotonic()", "began = time.time()"),
            ("until - time.monotonic()", "until - time.time()"),
        ),
        noticed_by=(
            ("unit/test_stream_batches.py", "test_a_clock_that_is_set_back_delays_nobody"),
        ),
    ),
    Break(
        name="removed-end-unseen",
        guarantee="Never half a transaction in a batch",
        without="Who has seen what a dead writer left unfinished does not see what replaced it.",
        file="changelog/view.py",
        edits=(("not all(name in found for name in known.segments[kept:])", "False"),),
        noticed_by=(
            ("unit/test_log_view.py", "test_what_a_new_writer_puts_in_the_place_of_an_open_end"),
            (
                "unit/test_log_view.py",
                "test_the_late_end_of_a_transaction_whose_parts_were_removed_does_not_follow_them",
            ),
        ),
    ),
    Break(
        name="late-write-counts",
        guarantee="The same on object storage",
        without="A segment that the store takes after its writer died and was replaced is read.",
        file="changelog/writer.py",
        edits=(("if self._log.segments.has_late_writes and self._held:", "if self.epoch < 0:"),),
        noticed_by=(
            (
                "contract/test_log_storage.py",
                "test_a_write_that_arrives_after_a_takeover_never_counts",
            ),
        ),
    ),
    Break(
        name="late-write-read-before-it-is-replaced",
        guarantee="The same on object storage",
        without="A segment that arrives late is read before the next writer's takes its place,"
        " which may hold other messages of the same topics.",
        file="changelog/view.py",
        edits=(("if is_known or not self._log.is_replaced(last.epoch):", "if not is_known:"),),
        noticed_by=(
            ("unit/test_kafka_takeover.py", "test_what_the_next_one_has_not_seen_is_not_read"),
            ("unit/test_log_life.py", "test_what_arrives_late_is_never_read_and_stops_nobody"),
        ),
    ),
    Break(
        name="late-write-from-an-earlier-log",
        guarantee="The same on object storage",
        without="What was sent to a log that was deleted hides the whole one that took its place.",
        file="changelog/writer.py",
        edits=(("if not newest and self._log.segments.has_late_writes:", "if newest < 0:"),),
        noticed_by=(
            ("unit/test_log_life.py", "test_what_arrives_late_is_never_read_and_stops_nobody"),
        ),
    ),
    Break(
        name="late-write-read-twice",
        guarantee="The same on object storage",
        without="A segment that arrives late is read beside those of the next writer, whose first "
        "one is removed.",
        file="changelog/chain.py",
        edits=(("if name.last <= begins:", "if begins:"),),
        noticed_by=(
            ("unit/test_log_life.py", "test_what_arrives_late_is_never_read_and_stops_nobody"),
            ("unit/test_chain.py", "TestChain::test_nor_does_it_when_what_replaced_it_is_removed"),
        ),
    ),
    Break(
        name="late-write-stops-all",
        guarantee="The same on object storage",
        without="A segment that arrives when all around it is removed is taken for a log with a "
        "gap, for good.",
        file="changelog/retention.py",
        edits=(("late_writes and before.epoch < behind[0].epoch", "False"),),
        noticed_by=(
            ("unit/test_log_life.py", "test_what_arrives_late_is_never_read_and_stops_nobody"),
            ("unit/test_retention.py", "TestALateWrite::test_it_stops_nobody"),
        ),
    ),
    Break(
        name="sent-twice-stops-all",
        guarantee="The same on object storage",
        without="A write that was sent twice arrives again when its segment is removed, and the log"
        " seems to have lost those behind it, for good.",
        file="changelog/retention.py",
        edits=(("max(grace_seconds, _LATE_SECONDS) if late_writes else", ""),),
        noticed_by=(
            (
                "unit/test_log_life.py",
                "test_what_is_sent_twice_finds_itself_when_it_arrives_again",
            ),
            (
                "unit/test_many_readers.py",
                "test_in_a_store_nothing_goes_while_it_may_arrive_once_more",
            ),
        ),
    ),
    Break(
        name="removed-before-it-is-written-down",
        guarantee="The same on object storage",
        without="Segments are removed that readers hold, and have not said so where others look: "
        "with a gap there the log seems to have lost one.",
        file="source/capture/keeper.py",
        edits=(
            (
                "expired(listing.segments, self._removable, now)",
                "expired(listing.segments, self.readers.frontiers, now)",
            ),
        ),
        noticed_by=(
            ("unit/test_many_readers.py", "test_what_a_reader_has_not_written_down_is_not_removed"),
        ),
    ),
    Break(
        name="a-log-taken-for-a-late-write",
        guarantee="Nothing is lost",
        without="Behind a segment that arrived late all of an earlier writer's are swept away.",
        file="changelog/chain.py",
        edits=(("is_stale and len({*ending}) == len(ending)", "is_stale"),),
        noticed_by=(
            (
                "unit/test_chain.py",
                "test_what_a_fenced_writer_left_behind_a_gap_does_not_count",
            ),
        ),
    ),
    Break(
        name="batches-by-compressed-bytes",
        guarantee="A backlog is bounded and drains",
        without="A batch has as many compressed bytes as it may have in memory.",
        file="changelog/chain.py",
        edits=(("segment.unpacked or sizes.get(segment, 0)", "sizes.get(segment, 0)"),),
        noticed_by=(
            (
                "unit/test_chain.py",
                "TestNextBatch::test_of_compressed_segments_counts_what_they_take_in_memory",
            ),
        ),
    ),
    Break(
        name="confirmed-though-fenced",
        guarantee="One writer",
        without="A capture process that was replaced while it wrote confirms what does not count.",
        file="changelog/writer.py",
        edits=(
            (
                "self._check_fence(now=True)\n        self._next += 1",
                "self._next += 1",
            ),
        ),
        noticed_by=(
            (
                "unit/test_capture_session.py",
                "test_what_was_written_after_a_takeover_is_not_confirmed",
            ),
        ),
    ),
    Break(
        name="lost-answer-is-another-s",
        guarantee="The same on object storage",
        without="A writer whose answer was lost takes its own epoch for somebody else's.",
        file="objects/bucket.py",
        edits=(("return bytes(held) == data", "return False"),),
        noticed_by=(
            (
                "contract/test_log_storage.py",
                "test_an_answer_that_is_lost_is_no_other_s_success",
            ),
        ),
    ),
    Break(
        name="any-session-of-that-name-holds-it",
        guarantee="A run may go on on another machine",
        without="A snapshot is taken for the one that was held, whoever holds it now.",
        file="source/postgres/snapshot/held_snapshot.py",
        edits=(
            (
                "self._held = None if xmin_age(conn, held) is None else held",
                "self._held = held",
            ),
        ),
        noticed_by=(
            (
                "integration/test_snapshot_holder.py",
                "test_another_session_of_that_name_is_not_taken_for_it",
            ),
        ),
    ),
    Break(
        name="executors-look-for-the-driver-s-python",
        guarantee="The same on a cluster",
        without="Executors are told of a Python that only the driver's machine has.",
        file="spark/session.py",
        edits=(('os.environ["PYSPARK_PYTHON"] = PYTHON', "pass"),),
        noticed_by=(("integration/test_cluster.py", "test_a_pipeline_on_isolated_workers"),),
    ),
    Break(
        name="barrier-overlooked",
        guarantee="What is there can be proven",
        without="Who is told of new segments does not look for barriers, and goes past verify's.",
        file="changelog/view.py",
        edits=(("self._pace.list_idle if sees_barriers else _TOLD_SECONDS", "_TOLD_SECONDS"),),
        noticed_by=(("unit/test_log_view.py", "test_a_barrier_is_seen_in_time_whatever_is_told"),),
    ),
    Break(
        name="checksum-not-compared",
        guarantee="Damage is noticed",
        without="A segment whose bytes were altered on the disk is read all the same.",
        file="changelog/segment.py",
        edits=(("if checksum(data) != name.checksum:", "if not data.size:"),),
        noticed_by=(("unit/test_segment.py", "test_a_flipped_bit_is_noticed"),),
    ),
    Break(
        name="stale-writer-not-fenced",
        guarantee="One writer",
        without="A capture process that was replaced goes on publishing segments.",
        file="changelog/writer.py",
        edits=(("if not self._log.epochs.exists(epoch_name(self.epoch)):", "if self.epoch < 0:"),),
        noticed_by=(("unit/test_changelog.py", "test_a_new_writer_fences_the_old_one"),),
    ),
    Break(
        name="stale-segments-count",
        guarantee="One writer",
        without="What a stale writer adds behind its successor's segments is read.",
        file="changelog/chain.py",
        edits=(("if name.epoch >= epoch:", "if name.epoch >= 0:"),),
        noticed_by=(
            ("unit/test_chain.py", "TestChain::test_what_a_stale_writer_adds_later_does_not_count"),
        ),
    ),
    Break(
        name="partial-transaction-kept",
        guarantee="Never half a transaction in a batch",
        without="The part of a transaction that a crash left in the log stays beside the whole one "
        "that Postgres sends again.",
        file="changelog/writer.py",
        edits=(
            (
                "while segments and segments[-1].is_unfinished:",
                "while segments and not segments[0].sequence:",
            ),
        ),
        noticed_by=(("unit/test_changelog.py", "test_leftovers_of_a_crash_are_removed_at_start"),),
    ),
    Break(
        name="batch-ends-inside-a-transaction",
        guarantee="Never half a transaction in a batch",
        without="A batch takes what a segment holds of a transaction that ends in a later one.",
        file="changelog/segment_run.py",
        edits=(("int(last - first)", "len(commits) - int(first)"),),
        noticed_by=(("unit/test_run.py", "test_a_pointer_takes_only_its_transactions"),),
    ),
    Break(
        name="open-segments-skipped",
        guarantee="Never half a transaction in a batch",
        without="Of a transaction over several segments only the last part is read.",
        file="changelog/chain.py",
        edits=(("held_up_to = finished_by", "held_up_to = segment.last"),),
        noticed_by=(("unit/test_run.py", "test_a_reader_gets_each_whole_transaction_once"),),
    ),
    Break(
        name="gap-stepped-over",
        guarantee="Nothing is lost",
        without="A reader goes on behind transactions that the log does not hold.",
        file="changelog/chain.py",
        edits=(("if segment.after > held:", "if segment.after < 0:"),),
        noticed_by=(("unit/test_chain.py", "TestBetween::test_missing_transactions_are_an_error"),),
    ),
    Break(
        name="what-a-removal-left-counts",
        guarantee="Old segments go without a trace",
        without="What is left of a removal that was interrupted is taken for a log with a gap.",
        file="changelog/retention.py",
        edits=((" and behind[0] not in _passed(behind, frontiers)", ""),),
        noticed_by=(
            (
                "unit/test_retention.py",
                "TestAnInterruptedRemoval::test_what_is_left_of_it_does_not_count",
            ),
        ),
    ),
    Break(
        name="retention-by-the-fastest-reader",
        guarantee="Nothing is lost",
        without="Segments are removed that a slower reader still needs.",
        file="changelog/retention.py",
        edits=(("held = min(frontiers).commit_lsn", "held = max(frontiers).commit_lsn"),),
        noticed_by=(("unit/test_retention.py", "test_the_slowest_reader_decides"),),
    ),
    Break(
        name="log-of-another-server",
        guarantee="Nothing is lost",
        without="A server with another system identifier or timeline goes on with the log, where "
        "its positions mean something else.",
        file="changelog/changelog.py",
        edits=(('if name != "timeline" and known', 'if name == "slot" and known'),),
        noticed_by=(("unit/test_changelog.py", "test_another_source_is_refused"),),
    ),
    Break(
        name="batches-do-not-grow",
        guarantee="A backlog is bounded and drains",
        without="A backlog is drained in small batches, however long it is.",
        file="changelog/batch_size.py",
        edits=(("self.factor * 2)", "self.factor)"),),
        noticed_by=(("unit/test_batch_size.py", "test_a_backlog_drains_in_few_batches"),),
    ),
    Break(
        name="pieces-of-another-writer",
        guarantee="Nothing is lost",
        without="What was taken of a transaction that its writer did not finish counts for the one "
        "that received it again.",
        file="changelog/log_batches.py",
        edits=(
            (
                "return [p.segment for p in pointers[: len(taken)]] == [p.segment for p in taken]",
                "return True",
            ),
        ),
        noticed_by=(
            (
                "unit/test_log_batches.py",
                "test_one_that_another_writer_receives_again_begins_anew",
            ),
        ),
    ),
    Break(
        name="queue-position-taken-back",
        guarantee="Nothing is lost",
        without="A driver writes its position over a further one, which another had said since.",
        file="changelog/reader_record.py",
        edits=(("is_news = found is not None and found != self._known", "is_news = False"),),
        noticed_by=(
            (
                "unit/test_reader_record.py",
                "test_what_another_driver_has_said_since_is_not_taken_back",
            ),
        ),
    ),
)
