"""The statements that join what several parts of a batch hold of one row. Pure: texts only."""

from __future__ import annotations

from psycopg import sql

from penstock.destination.postgres.merging.sql_pieces import (
    PARTS,
    Statement,
    all_of,
    comma,
    identifier,
    is_unset,
    staged_column,
    value_of,
)
from penstock.destination.postgres.staging.stage import Stage


def compose(stage: Stage) -> Statement:
    """Let the rows of part ``later`` take over those of the ``earlier`` parts that they go on from.

    Of two changes of one row in two parts one is left: from where the first began to where the
    second ended, each column with its last value.
    """
    numbers = range(len(stage.columns))
    earlier_after = [identifier("e", f"c{index + 1}") for index in stage.key]
    later_before = [
        sql.SQL("CASE l.op WHEN 'K' THEN {} ELSE {} END").format(
            identifier("l", f"k{place + 1}"), identifier("l", f"c{index + 1}")
        )
        for place, index in enumerate(stage.key)
    ]
    meets = all_of(
        sql.SQL("{} = {}").format(value_of(stage, index, after), value_of(stage, index, before))
        for index, after, before in zip(stage.key, earlier_after, later_before, strict=True)
    )
    values = [
        sql.SQL("{column} = CASE WHEN {unset} THEN {e} ELSE {l} END").format(
            column=identifier(f"c{index + 1}"),
            unset=is_unset(index, "l"),
            e=identifier("e", f"c{index + 1}"),
            l=identifier("l", f"c{index + 1}"),
        )
        for index in numbers
        if index not in stage.key
    ]
    # A row that was deleted stands under the key that it had at first.
    keys = [
        sql.SQL("{column} = CASE WHEN l.op = 'D' THEN {before} ELSE {l} END").format(
            column=identifier(f"c{index + 1}"),
            before=sql.SQL("CASE e.op WHEN 'K' THEN {} ELSE {} END").format(
                identifier("e", f"k{place + 1}"), identifier("e", f"c{index + 1}")
            ),
            l=identifier("l", f"c{index + 1}"),
        )
        for place, index in enumerate(stage.key)
    ]
    old_keys = [
        sql.SQL(
            "{k} = CASE WHEN l.op <> 'D' THEN CASE e.op WHEN 'K' THEN {e_k} ELSE {e_c} END END"
        ).format(
            k=identifier(f"k{place + 1}"),
            e_k=identifier("e", f"k{place + 1}"),
            e_c=identifier("e", f"c{index + 1}"),
        )
        for place, index in enumerate(stage.key)
    ]
    return sql.SQL(
        "WITH e AS (DELETE FROM {staging} e USING {staging} l"
        " WHERE e.part = ANY(%(earlier)s) AND e.op IN ('I', 'U', 'K')"
        " AND l.part = %(later)s AND l.op IN ('U', 'K', 'D') AND {meets} RETURNING e.*)"
        " UPDATE {staging} l SET {sets},"
        " op = CASE WHEN e.op = 'I' THEN CASE l.op WHEN 'D' THEN '-' ELSE 'I' END"
        " WHEN l.op = 'D' THEN 'D' WHEN e.op = 'U' AND l.op = 'U' THEN 'U' ELSE 'K' END,"
        " unset = CASE WHEN e.op <> 'I' AND l.op <> 'D' THEN (SELECT array_agg(u)"
        " FROM unnest(l.unset) u WHERE u = ANY(e.unset)) END"
        " FROM e WHERE l.part = %(later)s AND l.op IN ('U', 'K', 'D') AND {meets}"
    ).format(
        staging=stage.staging_id, meets=meets, sets=comma([*values, *keys, *old_keys])
    )  # fmt: skip


def compose_plain(stage: Stage) -> Statement:
    """The same for all parts at once, where no key changes and every row is whole.

    Then the last row of a key is what is left; only whether it was there before comes from the
    first. In one part a key has at most a delete and an insert, in this order: the delete is of the
    row that had the key when the part began. Its position may be the later one, where rows
    exchanged their keys on the way.
    """
    key = comma(value_of(stage, index) for index in stage.key)
    return sql.SQL(
        "WITH shared AS MATERIALIZED (SELECT {key} FROM {staging} s WHERE {parts}"
        " GROUP BY {places} HAVING count(*) > 1),"
        " ranked AS MATERIALIZED (SELECT s.ctid AS id, s.op AS last,"
        " first_value(s.op) OVER w AS first, lead(true) OVER w IS NULL AS is_last"
        " FROM {staging} s WHERE {parts} AND ({key}) IN (SELECT * FROM shared)"
        " WINDOW w AS (PARTITION BY {key}"
        " ORDER BY array_position(%(parts)s, s.part), s.op)),"
        " gone AS (DELETE FROM {staging} s USING ranked r WHERE s.ctid = r.id AND NOT r.is_last)"
        " UPDATE {staging} s SET op = CASE WHEN r.first = 'I'"
        " THEN CASE r.last WHEN 'D' THEN '-' ELSE 'I' END"
        " WHEN r.last = 'D' THEN 'D' ELSE 'U' END"
        " FROM ranked r WHERE s.ctid = r.id AND r.is_last"
    ).format(
        key=key,
        staging=stage.staging_id,
        parts=PARTS,
        places=comma(sql.SQL(str(place + 1)) for place in range(len(stage.key))),
    )  # fmt: skip


def tidy_composed(stage: Stage) -> Statement:
    """Rows that moved and came back are updates. As texts: a key may go from 1.0 to 1.00."""
    same = all_of(
        sql.SQL('{}::text = {}::text COLLATE "C"').format(
            staged_column(index), identifier("s", f"k{place + 1}")
        )
        for place, index in enumerate(stage.key)
    )
    return sql.SQL("UPDATE {} s SET op = 'U' WHERE {} AND s.op = 'K' AND {}").format(
        stage.staging_id, PARTS, same
    )
