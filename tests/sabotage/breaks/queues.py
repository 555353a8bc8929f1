"""Breaks of destinations that append: files, Kafka, Kinesis, RabbitMQ."""

from __future__ import annotations

from tests.sabotage.a_break import Break

_READ_LANE = "self._sent = read_lane(options, self._topic, lane)"
_SYNCED = "test_what_a_manifest_names_has_reached_the_disk_and_so_has_the_manifest"
_REPEATED = (
    "        elif entry.place in self._tops and not mark.is_behind(self._tops[entry.place]):\n"
)
_WHOLE = "test_each_transaction_comes_whole_and_once_whatever_is_repeated_and_wherever_capture_dies"

BREAKS = (
    Break(
        name="split-transactions-unsaid",
        guarantee="Topics come back whole",
        without="A destination promises whole transactions of topics, which do not have them.",
        file="pipeline/run/promises.py",
        edits=(('split_transactions == "refuse":', 'split_transactions == "":'),),
        noticed_by=(
            (
                "unit/test_promises.py",
                "test_who_promises_whole_transactions_is_refused_by_name",
            ),
        ),
    ),
    Break(
        name="rows-released-before-their-end",
        guarantee="Topics come back whole",
        without="A transaction is written once its END was read, though rows of it are still to "
        "come.",
        file="source/kafka/assembling.py",
        edits=(("        if lacking := self._lacking(end):\n", "        if lacking := []:\n"),),
        noticed_by=(
            ("unit/test_assembling.py", "test_rows_wait_for_their_end_and_an_end_for_its_rows"),
            ("unit/test_assembling.py", _WHOLE),
        ),
    ),
    Break(
        name="rows-that-wait-for-no-end",
        guarantee="Topics come back whole",
        without="Rows of a transaction are written as they come.",
        file="source/kafka/whole_transactions.py",
        edits=(("        entry.mark = mark\n", ""),),
        noticed_by=(
            (
                "unit/test_topic_transactions.py",
                "test_nothing_of_a_transaction_is_taken_before_all_of_it_is_there",
            ),
        ),
    ),
    Break(
        name="offsets-beyond-held-rows",
        guarantee="Topics come back whole",
        without="Offsets are stored behind rows that only memory holds: a restart loses them.",
        file="source/kafka/whole_transactions.py",
        edits=(
            (
                "        self._next[place] = offset + 1\n",
                "        self._next[place] = self._offsets.partitions[place].next = offset + 1\n",
            ),
        ),
        noticed_by=(
            (
                "unit/test_topic_transactions.py",
                "test_nothing_of_a_transaction_is_taken_before_all_of_it_is_there",
            ),
        ),
    ),
    Break(
        name="repeated-rows-of-completed-transactions",
        guarantee="Topics come back whole",
        without="What a connector says again after a restart is held as if it were new.",
        file="source/kafka/assembling.py",
        edits=(
            (
                _REPEATED,
                "        elif not mark.lsn:\n",
            ),
        ),
        noticed_by=(("unit/test_assembling.py", _WHOLE),),
    ),
    Break(
        name="rows-that-an-end-did-not-count",
        guarantee="Topics come back whole",
        without="A row that comes once its transaction was completed without it is left out.",
        file="source/kafka/assembling.py",
        edits=(
            (
                _REPEATED,
                "        elif mark.after < self._ended.lsn:\n",
            ),
        ),
        noticed_by=(("unit/test_assembling.py", "test_what_fits_no_order_is_refused_by_name"),),
    ),
    Break(
        name="tombstones-that-are-said-again",
        guarantee="Topics come back whole",
        without="After a restart of the connector a tombstone deletes a row that came behind it.",
        file="source/kafka/whole_transactions.py",
        edits=(("        if message.value() is None:\n", "        if not message:\n"),),
        noticed_by=(
            (
                "unit/test_topic_transactions.py",
                "test_a_tombstone_that_is_said_again_deletes_no_row_that_came_since",
            ),
        ),
    ),
    Break(
        name="changes-without-marks",
        guarantee="Topics come back whole",
        without="Changes that name no transaction pass for whole ones.",
        file="source/kafka/whole_transactions.py",
        edits=(('split_transactions == "refuse":', 'split_transactions == "":'),),
        noticed_by=(
            (
                "unit/test_topic_transactions.py",
                "test_rows_that_were_there_are_taken_in_their_place_and_changes_without_marks_are_refused",
            ),
        ),
    ),
    Break(
        name="transactions-of-another-server",
        guarantee="Topics come back whole",
        without="What a server says that was restored to an earlier state passes for said again, "
        "and is left out.",
        file="source/kafka/assembling.py",
        edits=(("        if millis > self._ended.millis:\n", "        if millis < 0:\n"),),
        noticed_by=(("unit/test_assembling.py", "test_what_fits_no_order_is_refused_by_name"),),
    ),
    Break(
        name="ends-that-were-never-there",
        guarantee="Topics come back whole",
        without="Whoever forges an END far ahead lets all that comes pass for said again.",
        file="source/kafka/assembling.py",
        edits=(("            if self._ended.lacks(end.lsn):\n", "            if not end.xid:\n"),),
        noticed_by=(
            (
                "unit/test_assembling.py",
                "test_an_end_that_was_never_there_does_not_pass_for_said_again",
            ),
        ),
    ),
    Break(
        name="repeated-messages-of-topics-count",
        guarantee="Topics come back whole",
        without="What a writer of topics sent again after a crash is taken a second time.",
        file="source/kafka/transcode.py",
        edits=(("if known is not None and at <= known:", "if known is not None and at < known:"),),
        noticed_by=(("unit/test_kafka_source_messages.py", "test_what_was_sent_again_comes_once"),),
    ),
    Break(
        name="positions-of-another-source",
        guarantee="Topics come back whole",
        without="A writer that has begun anew on another server sends changes whose positions are "
        "lower, and they pass for sent before.",
        file="source/kafka/transcode.py",
        edits=(("if known and found not in known:", "if not known and found in known:"),),
        noticed_by=(
            (
                "unit/test_kafka_source_messages.py",
                "test_messages_of_another_source_are_refused_by_name_and_not_taken_for_repeated",
            ),
        ),
    ),
    Break(
        name="half-known-changes",
        guarantee="Topics come back whole",
        without="A capture that is told to stop while it reads a partition again takes a copied "
        "row over a newer change.",
        file="source/kafka/session.py",
        edits=(("                    raise Stopped\n", "                    return\n"),),
        noticed_by=(
            (
                "unit/test_topic_session.py",
                "test_a_copied_row_is_not_judged_by_a_part_of_its_partition",
            ),
        ),
    ),
    Break(
        name="set-aside-holds-up-schema-changes",
        guarantee="Tables fail alone",
        without="Once a table was set aside, capture of topics waits for it at the next schema "
        "change of any other, for ever.",
        file="source/capture/keeper.py",
        edits=(("state.stream or state.frontier", "state.frontier"),),
        noticed_by=(
            (
                "unit/test_topic_session.py",
                "test_a_schema_change_waits_for_readers_and_not_for_tables_that_they_have_set_aside",
            ),
        ),
    ),
    Break(
        name="tables-of-two-topics",
        guarantee="Topics come back whole",
        without="Whoever may make a topic whose name matches empties a table.",
        file="source/kafka/topic_set.py",
        edits=(("        if known == place.topic:\n", "        if known:\n"),),
        noticed_by=(("unit/test_topic_session.py", "test_a_table_comes_from_one_topic"),),
    ),
    Break(
        name="unset-columns-of-new-keys",
        guarantee="Topics come back whole",
        without="A large value that was not sent with a new key becomes null.",
        file="source/kafka/transcode.py",
        edits=((" and is_first and not event.unset:", " and is_first:"),),
        noticed_by=(
            (
                "unit/test_kafka_source_messages.py",
                "test_a_row_under_a_new_key_keeps_the_value_that_was_not_sent",
            ),
        ),
    ),
    Break(
        name="manifest-not-exclusive",
        guarantee="Once, where the destination allows it",
        without="A driver that was replaced writes over the manifest of its successor.",
        file="destination/families/durable.py",
        edits=(("os.link(temporary, path)", "os.replace(temporary, path)"),),
        noticed_by=(
            ("contract/test_files.py", "TestFiles::test_a_stale_driver_is_fenced[parquet]"),
        ),
    ),
    Break(
        name="number-of-a-removed-manifest",
        guarantee="Once, where the destination allows it",
        without="A driver that slept for long commits under the number of a manifest that is gone.",
        file="destination/files/manifest.py",
        edits=(("if max(self._numbers()) > manifest.number:", "if not self._numbers():"),),
        noticed_by=(
            (
                "unit/test_files_commit.py",
                "test_a_driver_that_slept_past_the_removal_of_old_manifests_is_fenced",
            ),
        ),
    ),
    Break(
        name="commit-of-its-own-unseen",
        guarantee="The same on object storage",
        without="A batch is committed again in other files, whose first commit came to pass late.",
        file="destination/files/destination.py",
        edits=(("if self._has_overtaken or not self._commit(", "if not self._commit("),),
        noticed_by=(
            (
                "integration/test_object_files.py",
                "test_a_batch_that_was_planned_before_another_thread_found_such_a_commit_is_not_committed",
            ),
        ),
    ),
    Break(
        name="commit-not-finished",
        guarantee="Once, where the destination allows it",
        without="Files of a commit that a crash cut off are never moved to their places.",
        file="destination/files/destination.py",
        edits=(("                self._move(last.files)\n", "                pass\n"),),
        noticed_by=(
            (
                "unit/test_files_commit.py",
                "test_a_crash_between_manifest_and_renames_is_finished_by_the_next_driver",
            ),
        ),
    ),
    Break(
        name="data-files-not-synced",
        guarantee="Nothing is lost",
        without="A manifest names files whose bytes have not reached the disk.",
        file="destination/files/tree.py",
        edits=(("        durable.sync_all(files)\n", ""),),
        noticed_by=(("unit/test_files_commit.py", _SYNCED),),
    ),
    Break(
        name="manifest-not-synced",
        guarantee="Nothing is lost",
        without="A manifest counts before its bytes have reached the disk.",
        file="destination/families/durable.py",
        edits=(("        sync(temporary)\n", ""),),
        noticed_by=(("unit/test_files_commit.py", _SYNCED),),
    ),
    Break(
        name="lane-position-not-compared",
        guarantee="In order per lane, in queues",
        without="A replay sends again what the lane's transactions hold already.",
        file="destination/kafka/sender.py",
        edits=(("        events = _behind(events, self._sent)\n", ""),),
        noticed_by=(
            (
                "contract/test_kafka.py",
                "TestKafka::test_a_task_that_ran_twice_counts_once[transactional]",
            ),
        ),
    ),
    Break(
        name="lane-read-before-it-is-taken-over",
        guarantee="In order per lane, in queues",
        without="A lane is read while the last transaction of a sender that died is undecided.",
        file="destination/kafka/sender.py",
        edits=(
            (f"        {_READ_LANE}\n", ""),
            ("self._producer = Trans", f"{_READ_LANE}\n        self._producer = Trans"),
        ),
        noticed_by=(
            (
                "unit/test_kafka_producers.py",
                "test_a_lane_is_read_when_no_transaction_of_it_is_open",
            ),
        ),
    ),
    Break(
        name="messages-overtake-a-failed-one",
        guarantee="In order per lane, in queues",
        without="Messages arrive that were sent after one which failed for good.",
        file="destination/kafka/producers.py",
        edits=(('"enable.gapless.guarantee": True', '"enable.gapless.guarantee": False'),),
        noticed_by=(
            (
                "unit/test_kafka_producers.py",
                "test_no_message_arrives_after_one_that_failed_for_good",
            ),
        ),
    ),
    Break(
        name="two-records-of-a-key-in-a-call",
        guarantee="In order per lane, in queues",
        without="A call to Kinesis holds two records of a key: the first can fail, and come later.",
        file="destination/kinesis/calls.py",
        edits=(
            (
                "        self._sizes = sizes\n",
                "        self._sizes = sizes\n        groups = np.arange(len(groups))\n",
            ),
        ),
        noticed_by=(
            ("unit/test_kinesis_calls.py", "test_order_is_kept_and_nothing_lost_whatever_fails"),
        ),
    ),
    Break(
        name="two-messages-of-a-key-under-way",
        guarantee="In order per lane, in queues",
        without="RabbitMQ gets the next message of a key before it has taken this one.",
        file="destination/rabbitmq/sender.py",
        edits=(("messages if self._ordered else self._apart(messages)", "self._apart(messages)"),),
        noticed_by=(
            (
                "integration/test_rabbitmq_delivery.py",
                "test_order_is_kept_while_a_queue_refuses_messages",
            ),
        ),
    ),
    Break(
        name="undecided-position",
        guarantee="A position is decided before it counts",
        without="A position whose transaction is not decided yet is taken for none.",
        file="destination/kafka/positions.py",
        edits=(("if high >= written:", "if high >= low:"),),
        noticed_by=(
            (
                "integration/test_kafka_positions.py",
                "test_what_nobody_decides_is_not_taken_for_an_answer",
            ),
        ),
    ),
    Break(
        name="positions-wait-for-a-pause",
        guarantee="A position is decided before it counts",
        without="Whoever asks where a busy pipeline stands waits until it pauses.",
        file="destination/kafka/positions.py",
        edits=(("if (message.offset() or 0) >= end - 1:", "if False:"),),
        noticed_by=(
            (
                "integration/test_kafka_positions.py",
                "test_a_reader_comes_to_its_end_while_a_driver_commits",
            ),
        ),
    ),
)
