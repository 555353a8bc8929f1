"""Servers that are not what they were, and what nobody tells of."""

from __future__ import annotations

from tests.sabotage.a_break import Break

BREAKS = (
    Break(
        name="source-goes-back",
        guarantee="Positions are of one source",
        without="A source that was restored from an image is read from where it has never been.",
        file="model/source_identity.py",
        edits=(("if lsn > self.flushed_lsn:", "if lsn > 2**64:"),),
        noticed_by=(
            ("unit/test_source_identity.py", "test_a_source_that_went_back_is_refused"),
            (
                "integration/test_source_identity.py",
                "test_a_restored_image_is_noticed_and_the_remedy_works",
            ),
        ),
    ),
    Break(
        name="identity-forgotten",
        guarantee="Positions are of one source",
        without="A start without the source writes that the position is of no source.",
        file="pipeline/run/batch_committer.py",
        edits=(
            (
                "self._seen.identity if self._seen else known_source",
                "self._seen and self._seen.identity",
            ),
        ),
        noticed_by=(
            (
                "unit/test_setback.py",
                "test_what_the_destination_knows_of_the_source_outlives_a_start_without_it",
            ),
        ),
    ),
    Break(
        name="any-timeline",
        guarantee="Positions are of one source",
        without="What a promoted standby never had is taken for a part of its history.",
        file="model/source_identity.py",
        edits=(("if left[then] < lsn:", "if left[then] < 0:"),),
        noticed_by=(
            ("unit/test_source_identity.py", "test_after_a_promotion_the_history_decides"),
            ("unit/test_changelog.py", "test_after_a_promotion_a_log_goes_on_that_ends_before_it"),
            (
                "integration/test_source_identity.py",
                "test_a_promoted_standby_that_lost_what_we_hold",
            ),
        ),
    ),
    Break(
        name="promotion-that-capture-knows-first",
        guarantee="Positions are of one source",
        without="What came from a promoted standby is taken for what the old primary had and lost.",
        file="pipeline/run/batch_committer.py",
        edits=(("if listing.writer == self._writer:", "if listing.writer >= 0:"),),
        noticed_by=(("unit/test_setback.py", "test_capture_may_know_of_a_promotion_first"),),
    ),
    Break(
        name="no-timeline-but-the-first",
        guarantee="Positions are of one source",
        without="A standby that was promoted is refused, though nothing was lost.",
        file="source/postgres/seen_source.py",
        edits=(("if int(timeline) > 1 else []", "if int(timeline) > 9 else []"),),
        noticed_by=(
            (
                "integration/test_source_identity.py",
                "test_a_promoted_standby_that_lost_nothing_goes_on",
            ),
        ),
    ),
    Break(
        name="standby-for-a-primary",
        guarantee="Positions are of one source",
        without="A standby is streamed from, and its new timeline is taken for the old one.",
        file="source/postgres/pipeline_lock.py",
        edits=(("        self._expect_primary()\n        began", "        began"),),
        noticed_by=(
            (
                "integration/test_source_identity.py",
                "test_a_standby_is_waited_for_until_it_is_promoted",
            ),
        ),
    ),
    Break(
        name="nameless-source",
        guarantee="Positions are of one source",
        without="A second pipeline of the same name, from another server, goes on from the position"
        " of the first.",
        file="pipeline/run/opened.py",
        edits=(("expect_source(session.seen(), held, log)", "session.seen()"),),
        noticed_by=(
            (
                "integration/test_another_source.py",
                "test_two_pipelines_of_one_name_into_one_destination",
            ),
        ),
    ),
    Break(
        name="source-is-not-kept",
        guarantee="Positions are of one source",
        without="The destination does not store of which source its position is.",
        file="destination/postgres/progress.py",
        edits=(('json.dumps(told["source"])', "None"),),
        noticed_by=(
            (
                "contract/test_postgres.py",
                "TestPostgres::test_the_source_of_a_position_is_remembered_with_it",
            ),
        ),
    ),
    Break(
        name="reader-of-any-source",
        guarantee="Positions are of one source",
        without="Capture goes on from what a destination got from another source.",
        file="source/postgres/capture/process.py",
        edits=(("seen.expect(reader.source, ", "seen.expect(None, "),),
        noticed_by=(
            (
                "integration/test_source_identity.py",
                "test_what_the_destination_holds_of_another_source_is_not_gone_on_from",
            ),
        ),
    ),
    Break(
        name="reconnects-to-any-source",
        guarantee="Positions are of one source",
        without="A driver whose connection was lost goes on with whatever answers.",
        file="pipeline/run/batch_committer.py",
        edits=(("            expect_source(seen, held, self._log)\n", ""),),
        noticed_by=(
            (
                "unit/test_setback.py",
                "test_a_source_that_was_connected_anew_is_looked_at_once",
            ),
            (
                "unit/test_setback.py",
                "test_what_a_promoted_source_never_had_is_not_delivered_from_the_log",
            ),
        ),
    ),
    Break(
        name="positions-outlive-destroy",
        guarantee="Positions are of one source",
        without="After `penstock destroy`, files are taken to hold what another slot has yet to"
        " bring.",
        file="destination/files/destination.py",
        edits=(("if last is None or last.frontier is None:", "if True:"),),
        noticed_by=(("contract/test_files.py", "TestFiles::test_what_is_forgotten_begins_anew"),),
    ),
    Break(
        name="table-comes-back-unseen",
        guarantee="A narrowed publication is noticed",
        without="A table that left the publication and came back goes on without what was lost.",
        file="model/publication_state.py",
        edits=(("elif before != table:", "elif before.publication != name:"),),
        noticed_by=(
            ("unit/test_publication_state.py", "test_a_table_that_left_and_came_back"),
            (
                "integration/test_reconcile.py",
                "TestNarrowed::test_a_table_that_left_comes_back_and_is_another_entry",
            ),
            (
                "integration/test_narrowed_publication.py",
                "test_what_was_lost_while_it_was_down",
            ),
        ),
    ),
    Break(
        name="options-altered-unseen",
        guarantee="A narrowed publication is noticed",
        without="Options that were altered and altered back are not noticed.",
        file="source/postgres/subscription/publications.py",
        edits=(("p.oid || '/' || p.xmin", "p.oid || '/'"),),
        noticed_by=(
            (
                "integration/test_reconcile.py",
                "TestNarrowed::test_options_that_somebody_set_back_are_noticed",
            ),
        ),
    ),
    Break(
        name="options-stay-narrow",
        guarantee="A narrowed publication is noticed",
        without="A publication that somebody narrowed stays so.",
        file="source/postgres/subscription/reconcile.py",
        edits=(("bool(self.limited or self.before.narrowed())", "bool(self.limited)"),),
        noticed_by=(("integration/test_reconcile.py", "TestNarrowed::test_options_are_set_back"),),
    ),
    Break(
        name="losses-forgotten-by-a-crash",
        guarantee="A narrowed publication is noticed",
        without="What the publications are is written down before what was lost is seen to.",
        file="pipeline/tables/lost_changes.py",
        edits=(
            (
                "        before, states = self._published, self._store.get_table_states()\n",
                (
                    "        before, states = self._published, self._store.get_table_states()\n"
                    "        self._store.set_publication(found.state)\n"
                ),
            ),
        ),
        noticed_by=(
            (
                "unit/test_subscribed_tables.py",
                "test_a_loss_that_a_crash_kept_from_being_noted_is_found_again",
            ),
        ),
    ),
    Break(
        name="columns-by-name-alone",
        guarantee="A column is what it was",
        without="Columns that swapped their names, or have another type, are taken for the same.",
        file="destination/postgres/staging/stage.py",
        edits=(
            (
                (
                    "        expect_announced(table, self.announced, "
                    "[names[place] for place in self.key], commit_lsn)\n"
                ),
                "",
            ),
        ),
        noticed_by=(("integration/test_schema_changes.py", "test_changes_that_only_rows_tell_of"),),
    ),
    Break(
        name="columns-without-numbers",
        guarantee="A column is what it was",
        without="A column that was dropped and added again keeps the values of the old one.",
        file="pipeline/tables/lost_changes.py",
        edits=(("            if at <= reached:\n", "            if at < 0:\n"),),
        noticed_by=(
            (
                "unit/test_subscribed_tables.py",
                "test_a_column_that_was_dropped_and_added_again_under_its_name",
            ),
        ),
    ),
    Break(
        name="setback-unseen",
        guarantee="A destination that lost commits gets them again",
        without="A destination that lost commits goes on, and nobody looks what else it has lost.",
        file="pipeline/run/batch_committer.py",
        edits=(("return remembers and at.end_lsn < self._said.end_lsn", "return False"),),
        noticed_by=(
            ("unit/test_setback.py", "test_it_goes_on_from_what_the_destination_has"),
            ("unit/test_setback.py", "test_copied_rows_that_may_be_lost_are_copied_anew"),
            ("unit/test_setback.py", "test_what_neither_log_nor_slot_has_is_refused"),
        ),
    ),
    Break(
        name="setback-is-a-fence",
        guarantee="A destination that lost commits gets them again",
        without="A server that lost commits is taken for one that another driver has taken over.",
        file="destination/postgres/progress.py",
        edits=(
            (
                (
                    "if found.epoch < held.epoch or (found.epoch == held.epoch and "
                    "found.is_before(held)):"
                ),
                "if found.epoch < 0:",
            ),
        ),
        noticed_by=(
            (
                "integration/test_postgres_commit.py",
                "test_a_server_that_lost_commits_is_asked_and_goes_on",
            ),
        ),
    ),
)
