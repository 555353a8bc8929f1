"""Breaks of the rules that change values on the way."""

from __future__ import annotations

from tests.sabotage.a_break import Break

_STAYS = "Values that rules cover do not leave"
_SAME = "The same value gives the same output"
_SOME = "Who holds some rows holds the right ones"

BREAKS: tuple[Break, ...] = (
    Break(
        name="old-images-leave-as-they-are",
        guarantee=_STAYS,
        without="Of an update or delete the row before leaves without the rules.",
        file="transform/transform.py",
        edits=(
            ("Values(old, changes.old_unset", "Values(changes.old_text(number), changes.old_unset"),
        ),
        noticed_by=(("unit/test_transform.py", "test_both_images_are_changed_as_copied_rows_are"),),
    ),
    Break(
        name="new-columns-leave-in-strict-mode",
        guarantee=_STAYS,
        without="A column that no rule names leaves as it is, though the mode is strict.",
        file="transform/transform.py",
        edits=(("uncovered := self.rules.uncovered(schema, name, names)", "uncovered := ()"),),
        noticed_by=(
            (
                "unit/test_transform.py",
                "test_strict_mode_stops_a_table_with_a_column_that_no_rule_names",
            ),
        ),
    ),
    Break(
        name="keep-takes-a-renamed-column",
        guarantee=_STAYS,
        without="A column that is renamed away from its rule leaves where a pattern keeps others.",
        file="transform/transform.py",
        edits=(
            (
                "if rule is None or rule.keeps:\n                place",
                "if rule is None:\n                place",
            ),
        ),
        noticed_by=(
            ("unit/test_transform.py", "test_keep_of_a_pattern_does_not_take_a_renamed_column"),
        ),
    ),
    Break(
        name="a-rename-that-nothing-told-of",
        guarantee=_STAYS,
        without="A table that is renamed while no event trigger tells of it leaves as it is.",
        file="transform/transform.py",
        edits=(("            self._expect(table)\n", "            pass\n"),),
        noticed_by=(
            (
                "unit/test_transform.py",
                "test_executors_notice_what_left_its_rule_though_nothing_told",
            ),
        ),
    ),
    Break(
        name="a-condition-that-an-update-changes",
        guarantee=_STAYS,
        without="A large value that was not sent stays raw, though its condition holds now.",
        file="transform/transform.py",
        edits=(("if unsure.any():", "if False:"),),
        noticed_by=(
            (
                "unit/test_transform.py",
                "test_a_condition_over_a_column_that_was_not_sent_stops_its_table",
            ),
        ),
    ),
    Break(
        name="the-source-quotes-a-value",
        guarantee=_STAYS,
        without="What the source says of a row that it refuses is logged, value and all.",
        file="transform/transform.py",
        edits=(
            (
                "        with source_unquoted(self.table.qualified_name):",
                "        with nullcontext():",
            ),
        ),
        noticed_by=(("unit/test_transform.py", "test_what_the_source_says_of_a_row_is_not_shown"),),
    ),
    Break(
        name="a-copy-takes-a-renamed-column",
        guarantee=_STAYS,
        without="A copy does not look whether a column was renamed away from its rule.",
        file="pipeline/copy/copy_admission.py",
        edits=(
            (
                "            if error is not None:\n",
                "            if error is not None and not before:\n",
            ),
        ),
        noticed_by=(
            ("unit/test_copy_admission.py", "test_a_copy_does_not_let_out_what_a_rule_covered"),
        ),
    ),
    Break(
        name="later-foreign-keys-are-not-looked-at",
        guarantee=_STAYS,
        without="A later table refers to a key that a rule changes, and holds it in clear.",
        file="transform/transform_check.py",
        edits=(("    if failed is None:\n", "    if True:\n"),),
        noticed_by=(
            (
                "unit/test_transform.py",
                "test_later_unique_indexes_and_foreign_keys_are_held_to_rules_too",
            ),
        ),
    ),
    Break(
        name="numbers-in-indexes-show-values",
        guarantee=_STAYS,
        without="An index with a number beside a changed column is made at the destination.",
        file="transform/shown_definition.py",
        edits=(
            ('return "\'" in plain or _NUMBER.search(plain) is not None', 'return "\'" in plain'),
        ),
        noticed_by=(
            (
                "unit/test_transform.py",
                "test_an_index_with_a_constant_beside_a_changed_column_is_not_made",
            ),
        ),
    ),
    Break(
        name="domains-share-a-key",
        guarantee=_SAME,
        without="Columns of two domains get the same pseudonyms, and can be joined.",
        file="transform/transformers/keys.py",
        edits=((", self.domain.encode()))", ", b''))"),),
        noticed_by=(("unit/test_transformers.py", "test_domains_and_keys"),),
    ),
    Break(
        name="references-by-chance",
        guarantee=_SAME,
        without="A rule that draws at random passes for a key and for what refers to it.",
        file="transform/transform_check.py",
        edits=(("(why := _parted(mine, is_nullable)) is not None", "(why := None)"),),
        noticed_by=(
            (
                "unit/test_transform.py",
                "test_the_same_rule_is_not_enough_where_it_depends_on_more",
            ),
        ),
    ),
    Break(
        name="leaves-are-texts",
        guarantee=_SAME,
        without="A key inside a document gets another number than in its column.",
        file="transform/transformers/leaves.py",
        edits=(("            node[key] = _number(text)", "            node[key] = text"),),
        noticed_by=(
            ("unit/test_transformers.py", "test_leaves_are_of_the_type_that_they_look_like"),
        ),
    ),
    Break(
        name="functions-draw-without-saying-so",
        guarantee=_SAME,
        without="A function of the source that draws gives a copied row another value than later.",
        file="transform/anonymizer_functions.py",
        edits=(("if is_drawn and not call.random:", "if False:"),),
        noticed_by=(("integration/test_anonymizer.py", "test_what_is_refused"),),
    ),
    Break(
        name="functions-have-no-fingerprint",
        guarantee=_SAME,
        without="Another salt of the source's functions passes for the same rules.",
        file="transform/transformers/anonymizer.py",
        edits=(("else self._functions.known(self.call).mark", 'else ""'),),
        noticed_by=(
            ("integration/test_anonymizer.py", "test_the_fingerprint_is_that_of_what_comes_out"),
        ),
    ),
    Break(
        name="functions-change-while-it-runs",
        guarantee=_SAME,
        without="Executors take what a function gives, though it gave something else before.",
        file="transform/anonymizer_functions.py",
        edits=(
            ("    if found[len(values) :] != [made for _, made in known.probes]:", "    if False:"),
            ("        if ask(session, call).mark != known.mark:", "        if False:"),
        ),
        noticed_by=(("integration/test_anonymizer.py", "test_executors_notice_another_function"),),
    ),
    Break(
        name="a-lost-connection-makes-nulls",
        guarantee=_SAME,
        without="With errors: null, values become null while the source's functions are away.",
        file="transform/transform.py",
        edits=(("_OF_NO_VALUE = (SourceUnavailable, UnfitError)", "_OF_NO_VALUE = ()"),),
        noticed_by=(
            ("unit/test_anonymizer.py", "test_what_no_value_is_to_blame_for_makes_no_nulls"),
        ),
    ),
    Break(
        name="functions-that-are-not-the-extensions",
        guarantee=_STAYS,
        without="A function that somebody made in the extension's schema is called in its place.",
        file="transform/anonymizer_functions.py",
        edits=(("    if not all(is_member for *_, is_member in found):", "    if False:"),),
        noticed_by=(("integration/test_anonymizer.py", "test_what_is_refused"),),
    ),
    Break(
        name="defaults-show-values",
        guarantee=_STAYS,
        without="Defaults of changed columns are made at the destination.",
        file="transform/shown_definition.py",
        edits=(("column.default if column.sequence is not None else None", "column.default"),),
        noticed_by=(("integration/test_planted_values.py", "test_no_planted_value_gets_out"),),
    ),
    Break(
        name="a-whole-schema-beside-rules",
        guarantee=_STAYS,
        without="pg_dump's text of the schema goes to the destination, with what rules hide.",
        file="pipeline/copy/schema_copy.py",
        edits=(("if config.transform is not None:", "if False:"),),
        noticed_by=(
            ("unit/test_whole_schema.py", "test_what_pg_dump_knows_nothing_of_is_refused"),
        ),
    ),
    Break(
        name="a-row-that-begins-to-match-is-updated",
        guarantee=_SOME,
        without="A row that begins to meet a condition is told as an update of one that is there.",
        file="transform/filter.py",
        edits=(("came = was_in[rows] < is_in[rows]", "came = np.zeros(len(rows), bool)"),),
        noticed_by=(
            ("unit/test_filter.py", "test_who_holds_rows_holds_those_that_meet_the_condition"),
        ),
    ),
)
