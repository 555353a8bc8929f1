"""Breaks of what is believed: messages, texts of the catalogue, wishes and owners."""

from __future__ import annotations

from tests.sabotage.a_break import Break

_PROVEN = "Schema changes are proven"
_HARMLESS = "Nothing foreign runs at the destination"

BREAKS = (
    Break(
        name="seal-not-checked",
        guarantee=_PROVEN,
        without="A message counts by its prefix.",
        file="model/schema_message.py",
        edits=(
            (
                "if not hmac.compare_digest(seal, self.seal(body)):",
                'if not body.startswith(b"{"):',
            ),
        ),
        noticed_by=(
            (
                "unit/test_message_filter.py",
                "test_whatever_else_has_their_prefix_is_left_out_and_counted",
            ),
        ),
    ),
    Break(
        name="seal-of-another-transaction",
        guarantee=_PROVEN,
        without="A sealed message can be sent again in another transaction.",
        file="model/schema_message.py",
        edits=(('return int(json.loads(body)["xid"]) % _XIDS == xid', "return bool(xid)"),),
        noticed_by=(
            (
                "unit/test_message_filter.py",
                "test_whatever_else_has_their_prefix_is_left_out_and_counted",
            ),
        ),
    ),
    Break(
        name="anybodys-messages",
        guarantee=_HARMLESS,
        without="Messages that nobody asks for reach the log.",
        file="source/postgres/capture/messages.py",
        edits=(("asked[row] = prefix in self._prefixes", "asked[row] = True"),),
        noticed_by=(
            (
                "unit/test_message_filter.py",
                "test_messages_that_nobody_asks_for_do_not_reach_the_log",
            ),
        ),
    ),
    Break(
        name="two-clauses",
        guarantee=_HARMLESS,
        without="A text of the catalogue may hold a second action.",
        file="source/postgres/catalogue/trust.py",
        edits=(('elif mark == "," and not opened:', "elif False:"),),
        noticed_by=(("unit/test_trust.py", "test_what_else_stands_there_does_not"),),
    ),
    Break(
        name="every-function-is-trusted",
        guarantee=_HARMLESS,
        without="Functions that are not built in run at the destination.",
        file="source/postgres/catalogue/trust.py",
        edits=(('if self.setting == "all":', "if True:"),),
        noticed_by=(("unit/test_trust.py", "test_what_else_stands_there_does_not"),),
    ),
    Break(
        name="stable-is-harmless",
        guarantee=_HARMLESS,
        without="Functions that are not volatile run at the destination, also if they read tables.",
        file="source/postgres/catalogue/trust.py",
        edits=(("bool_and(provolatile = 'i')", "bool_and(provolatile <> 'v')"),),
        noticed_by=(
            (
                "integration/test_trusted_functions.py",
                "test_what_reads_more_than_its_arguments_is_left_out",
            ),
        ),
    ),
    Break(
        name="everybodys-messages-asked-for",
        guarantee=_HARMLESS,
        without="Messages are read into memory though nobody wants any.",
        file="source/postgres/capture/process.py",
        edits=(
            ("return config.schema_changes.track or bool(config.source.messages)", "return True"),
        ),
        noticed_by=(
            (
                "unit/test_capture_start.py",
                "test_messages_of_strangers_are_asked_for_only_where_some_are_wanted",
            ),
        ),
    ),
    Break(
        name="roles-own-path",
        guarantee="What others planted does not run",
        without="Sessions keep the search path of their role.",
        file="source/postgres/connect.py",
        edits=(("{server_settings(url)}, {NO_PATH}", "{server_settings(url)}"),),
        noticed_by=(
            (
                "integration/test_planted_functions.py",
                "test_nothing_of_a_stranger_runs_in_sessions_at_the_source",
            ),
        ),
    ),
    Break(
        name="path-behind-a-pooler",
        guarantee="What others planted does not run",
        without="The store behind a pooler keeps the search path of its role.",
        file="store/postgres.py",
        edits=(("                without_path(conn)\n", ""),),
        noticed_by=(
            (
                "integration/test_planted_functions.py",
                "test_nothing_of_a_stranger_runs_in_sessions_of_the_store",
            ),
        ),
    ),
    Break(
        name="strangers-locks-count",
        guarantee="Locks of strangers hold up nothing",
        without="Whoever holds a key of the pipeline's lock keeps the pipeline from running.",
        file="source/postgres/pipeline_lock.py",
        edits=(("AND (a.pid IS NULL OR r.rolsuper", "AND (true OR r.rolsuper"),),
        noticed_by=(
            (
                "integration/test_pipeline_lock.py",
                "test_a_stranger_in_the_queue_gets_a_key_that_counts_for_nothing",
            ),
        ),
    ),
    Break(
        name="both-found-it-free",
        guarantee="One writer",
        without="Of two that find the pipeline's lock free at once, both take it.",
        file="source/postgres/pipeline_lock.py",
        edits=(("        other = self._holder()\n", "        other = None\n"),),
        noticed_by=(
            (
                "integration/test_pipeline_lock.py",
                "test_of_two_that_found_it_free_at_once_not_both_take_it",
            ),
        ),
    ),
    Break(
        name="others-write-the-store",
        guarantee="What others planted does not run",
        without="A store that others may write is believed.",
        file="store/ownership.py",
        edits=(("    if writers:\n", "    if False:\n"),),
        noticed_by=(
            (
                "integration/test_postgres_store.py",
                "test_a_store_that_default_privileges_opened_is_not_believed",
            ),
        ),
    ),
    Break(
        name="intruders-unseen",
        guarantee=_PROVEN,
        without="Triggers are used that another role could replace.",
        file="source/postgres/tracking/schema_tracking.py",
        edits=(
            (
                '    if found:\n        raise SourceError(\n            "Somebody',
                '    if False:\n        raise SourceError(\n            "Somebody',
            ),
        ),
        noticed_by=(
            (
                "integration/test_schema_tracking.py",
                "test_triggers_that_others_could_replace_are_refused_and_the_remedy_heals_them",
            ),
        ),
    ),
    Break(
        name="url-in-the-log",
        guarantee="Secrets stay in the process",
        without="The source's URL is logged as it is.",
        file="source/postgres/source.py",
        edits=(
            (
                "self._publications = subscription.publications\n",
                (
                    "self._publications = subscription.publications\n"
                    "        _log.warning(self._config.source.url.reveal())\n"
                ),
            ),
        ),
        noticed_by=(
            (
                "integration/test_planted_secrets.py",
                "test_planted_secrets_are_found_nowhere[postgres]",
            ),
        ),
    ),
    Break(
        name="wish-after-the-commit",
        guarantee="A wish outlives a crash",
        without="What must be copied anew after a change is forgotten by a crash.",
        file="pipeline/schema/schema_follower.py",
        edits=(
            (
                'self._store.set_wishes(dict.fromkeys(again, "resync"))',
                "pass",
            ),
        ),
        noticed_by=(
            (
                "integration/test_schema_changes_tables.py",
                "test_rows_that_were_rewritten_come_though_nobody_lived_to_ask_for_them",
            ),
        ),
    ),
)
