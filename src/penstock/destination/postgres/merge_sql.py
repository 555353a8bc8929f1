"""The statements that bring staged rows into their target. Pure: texts only.

All of them take the parts of the batch as their parameter ``parts``. ``s`` is the staging table,
``t`` the target.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from psycopg import sql

from penstock.destination.postgres.stage import Stage

Statement = sql.Composed


def _identifier(*names: str) -> sql.Identifier:
    """A quoted name. All statements here have parameters, so a % in one would be taken for one."""
    return sql.Identifier(*(name.replace("%", "%%") for name in names))


def target(stage: Stage) -> sql.Identifier:
    """The stage's target in a statement that has parameters."""
    return _identifier(*stage.target)


def _c(index: int) -> sql.Identifier:
    return _identifier("s", f"c{index + 1}")


def _name(stage: Stage, index: int) -> sql.Identifier:
    return _identifier(stage.columns[index].name)


def _value(stage: Stage, index: int, staged: sql.Composable | None = None) -> sql.Composable:
    """A staged value in the target's type."""
    staged = staged or _c(index)
    column = stage.columns[index]
    if not column.is_user_defined:
        return staged
    # As format_type() wrote it, qualified.
    return sql.SQL("{}::{}").format(staged, sql.SQL(column.type.replace("%", "%%")))


def _as_staged(stage: Stage, index: int) -> sql.Composable:
    """A target's value in the staging table's type."""
    value = _identifier("t", stage.columns[index].name)
    if stage.columns[index].is_user_defined:
        return sql.SQL("{}::text").format(value)
    return value


def _is_unset(index: int, row: str = "s") -> sql.Composable:
    return sql.SQL("{} = ANY({})").format(sql.Literal(index + 1), _identifier(row, "unset"))


def _comma(parts: Iterable[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(parts)


def _and(parts: Iterable[sql.Composable]) -> sql.Composed:
    return sql.SQL(" AND ").join(parts)


def _same_key(stage: Stage, staged: Sequence[sql.Composable]) -> sql.Composed:
    """The target's row has the staged key."""
    return _and(
        sql.SQL("{} = {}").format(
            _identifier("t", stage.columns[index].name), _value(stage, index, value)
        )
        for index, value in zip(stage.key, staged, strict=True)
    )


def _key_after(stage: Stage) -> list[sql.Composable]:
    return [_c(index) for index in stage.key]


def _key_before(stage: Stage, *, rekeys: bool) -> list[sql.Composable]:
    if not rekeys:
        return _key_after(stage)
    return [
        sql.SQL("CASE s.op WHEN 'K' THEN {} ELSE {} END").format(
            _identifier("s", f"k{place + 1}"), _c(index)
        )
        for place, index in enumerate(stage.key)
    ]


_PARTS = sql.SQL("s.part = ANY(%(parts)s)")


def count_parts(stages: Sequence[Stage]) -> Statement:
    """How many rows each part has in the staging table of each source table."""
    return sql.SQL(" UNION ALL ").join(
        sql.SQL(
            "SELECT {}::bigint, s.part, count(*) FROM {} s WHERE s.part = ANY(%(parts)s)"
            " GROUP BY s.part"
        ).format(sql.Literal(stage.oid), stage.staging_id)
        for stage in stages
    )


def count_ops(stage: Stage) -> Statement:
    """How many rows of each op are staged, and how many of the updates are incomplete."""
    return sql.SQL(
        "SELECT count(*) FILTER (WHERE s.op = 'I'), count(*) FILTER (WHERE s.op = 'U'),"
        " count(*) FILTER (WHERE s.op = 'K'), count(*) FILTER (WHERE s.op = 'D'),"
        " count(s.unset) FROM {} s WHERE {}"
    ).format(stage.staging_id, _PARTS)


def compose(stage: Stage) -> Statement:
    """Let the rows of part ``later`` take over those of the ``earlier`` parts that they go on from.

    Of two changes of one row in two parts one is left: from where the first began to where the
    second ended, each column with its last value.
    """
    numbers = range(len(stage.columns))
    earlier_after = [_identifier("e", f"c{index + 1}") for index in stage.key]
    later_before = [
        sql.SQL("CASE l.op WHEN 'K' THEN {} ELSE {} END").format(
            _identifier("l", f"k{place + 1}"), _identifier("l", f"c{index + 1}")
        )
        for place, index in enumerate(stage.key)
    ]
    meets = _and(
        sql.SQL("{} = {}").format(_value(stage, index, after), _value(stage, index, before))
        for index, after, before in zip(stage.key, earlier_after, later_before, strict=True)
    )
    values = [
        sql.SQL("{column} = CASE WHEN {unset} THEN {e} ELSE {l} END").format(
            column=_identifier(f"c{index + 1}"),
            unset=_is_unset(index, "l"),
            e=_identifier("e", f"c{index + 1}"),
            l=_identifier("l", f"c{index + 1}"),
        )
        for index in numbers
        if index not in stage.key
    ]
    # A row that was deleted stands under the key that it had at first.
    keys = [
        sql.SQL("{column} = CASE WHEN l.op = 'D' THEN {before} ELSE {l} END").format(
            column=_identifier(f"c{index + 1}"),
            before=sql.SQL("CASE e.op WHEN 'K' THEN {} ELSE {} END").format(
                _identifier("e", f"k{place + 1}"), _identifier("e", f"c{index + 1}")
            ),
            l=_identifier("l", f"c{index + 1}"),
        )
        for place, index in enumerate(stage.key)
    ]
    old_keys = [
        sql.SQL(
            "{k} = CASE WHEN l.op <> 'D' THEN CASE e.op WHEN 'K' THEN {e_k} ELSE {e_c} END END"
        ).format(
            k=_identifier(f"k{place + 1}"),
            e_k=_identifier("e", f"k{place + 1}"),
            e_c=_identifier("e", f"c{index + 1}"),
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
        staging=stage.staging_id, meets=meets, sets=_comma([*values, *keys, *old_keys])
    )  # fmt: skip


def compose_plain(stage: Stage) -> Statement:
    """The same for all parts at once, where no key changes and every row is whole.

    Then the last row of a key is what is left; only whether it was there before comes from the
    first. In one part a key has at most a delete and an insert, in this order: the delete is of the
    row that had the key when the part began. Its position may be the later one, where rows
    exchanged their keys on the way.
    """
    key = _comma(_value(stage, index) for index in stage.key)
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
        parts=_PARTS,
        places=_comma(sql.SQL(str(place + 1)) for place in range(len(stage.key))),
    )  # fmt: skip


def tidy_composed(stage: Stage) -> Statement:
    """Rows that moved and came back are updates. As texts: a key may go from 1.0 to 1.00."""
    same = _and(
        sql.SQL('{}::text = {}::text COLLATE "C"').format(
            _c(index), _identifier("s", f"k{place + 1}")
        )
        for place, index in enumerate(stage.key)
    )
    return sql.SQL("UPDATE {} s SET op = 'U' WHERE {} AND s.op = 'K' AND {}").format(
        stage.staging_id, _PARTS, same
    )


def complete(stage: Stage, *, only_rekeys: bool) -> Statement:
    """Fill unset columns from the target's row, while it is still there."""
    values = [
        sql.SQL("{} = CASE WHEN {} THEN {} ELSE {} END").format(
            _identifier(f"c{index + 1}"), _is_unset(index), _as_staged(stage, index), _c(index)
        )
        for index in range(len(stage.columns))
        if index not in stage.key
    ]
    return sql.SQL(
        "UPDATE {} s SET {} FROM {} t WHERE {} AND s.unset IS NOT NULL AND s.op {} AND {}"
    ).format(
        stage.staging_id,
        _comma([*values, sql.SQL("unset = NULL")]),
        target(stage),
        _PARTS,
        sql.SQL("= 'K'" if only_rekeys else "IN ('U', 'K')"),
        _same_key(stage, _key_before(stage, rekeys=True)),
    )


def delete(stage: Stage, *, rekeys: bool, updates: bool = False) -> Statement:
    """Remove the rows that went or moved; with ``updates`` also those that changed."""
    ops = ["'D'"] + ["'K'"] * rekeys + ["'U'"] * updates
    return sql.SQL("DELETE FROM {} t USING {} s WHERE {} AND s.op IN ({}) AND {}").format(
        target(stage),
        stage.staging_id,
        _PARTS,
        sql.SQL(", ".join(ops)),
        _same_key(stage, _key_before(stage, rekeys=rekeys)),
    )


def delete_in_the_way(stage: Stage) -> Statement:
    """Remove rows that stand where staged ones are to be put."""
    return sql.SQL(
        "DELETE FROM {} t USING {} s WHERE {} AND s.op IN ('I', 'K', 'U') AND {}"
    ).format(target(stage), stage.staging_id, _PARTS, _same_key(stage, _key_after(stage)))


def update(stage: Stage, *, incomplete: bool) -> Statement:
    """Change the rows that are there. They have more than a key."""
    values = []
    for index in range(len(stage.columns)):
        if index in stage.key:
            continue
        value = _value(stage, index)
        if incomplete:
            value = sql.SQL("CASE WHEN {} THEN {} ELSE {} END").format(
                _is_unset(index), _identifier("t", stage.columns[index].name), value
            )
        values.append(sql.SQL("{} = {}").format(_name(stage, index), value))
    return sql.SQL("UPDATE {} t SET {} FROM {} s WHERE {} AND s.op = 'U' AND {}").format(
        target(stage),
        _comma(values),
        stage.staging_id,
        _PARTS,
        _same_key(stage, _key_after(stage)),
    )


def insert(
    stage: Stage,
    ops: str = "",
    *,
    some_rows: bool = False,
    kept: bool | None = None,
) -> Statement:
    """Add staged rows: of a table with a key those of the given ops, else all that are to be added.

    With ``some_rows`` only those that the parameter ``rows`` names by their ctid. ``kept`` takes
    those for which a row was saved, each with its extras; False takes the others.
    """
    names, values = _insert_columns(stage, stage.extras if kept else ())
    wanted: list[sql.Composable] = [_PARTS]
    times: sql.Composable = sql.SQL("")
    if stage.kind == "keyed":
        wanted.append(sql.SQL("s.op IN ({})").format(_comma(map(sql.Literal, ops))))
    elif stage.kind == "counted":
        wanted.append(sql.SQL("s.n > 0"))
        times = sql.SQL(" CROSS JOIN LATERAL generate_series(1, s.n)")
    if some_rows:
        wanted.append(sql.SQL("s.ctid = ANY(%(rows)s::tid[])"))
    if kept:
        times = sql.SQL(" JOIN {} kept ON kept._row = s.ctid::text").format(BEFORE)
    elif kept is not None:
        other = sql.SQL("NOT EXISTS (SELECT FROM {} kept WHERE kept._row = s.ctid::text)")
        wanted.append(other.format(BEFORE))
    # Identity columns take the values that the source gave them.
    columns = sql.SQL("({}) OVERRIDING SYSTEM VALUE ").format(names) if stage.columns else None
    return sql.SQL("INSERT INTO {} {}SELECT {} FROM {} s{} WHERE {}").format(
        target(stage),
        columns or sql.SQL(""),
        values,
        stage.staging_id,
        times,
        _and(wanted),
    )


HISTORY_COLUMNS = {
    "_op": "s.op",
    "_commit_lsn": "('0/0'::pg_lsn + s.commit_lsn)",
    "_ordinal": "s.ordinal",
    "_commit_time": "s.committed",
    "_xid": "s.xid",
    "_unset": "s.unset",
    "_old": "s.old",
}
"""The columns that a history table has beside the source's, and where they come from."""


def _insert_columns(stage: Stage, extras: Sequence[str]) -> tuple[sql.Composed, sql.Composed]:
    numbers = range(len(stage.columns))
    names: list[sql.Composable] = [_name(stage, index) for index in numbers]
    values = [_value(stage, index) for index in numbers]
    if stage.kind == "history":
        names += [_identifier(name) for name in HISTORY_COLUMNS]
        values += [sql.SQL(value) for value in HISTORY_COLUMNS.values()]
    names += [_identifier(name) for name in extras]
    values += [_identifier("kept", name) for name in extras]
    return _comma(names), _comma(values)


def _image(stage: Stage, values: Iterable[sql.Composable]) -> sql.Composable:
    """A whole row as one text. Text tells more rows apart than =, which json and xml lack."""
    return sql.SQL("ROW({})::text").format(_comma(values))


def _staged_image(stage: Stage) -> sql.Composable:
    return _image(stage, [_value(stage, index) for index in range(len(stage.columns))])


def sum_counts(stage: Stage) -> Statement:
    """Let one of several equal rows stand for all of them, with their sum."""
    return sql.SQL(
        "UPDATE {staging} s SET n = CASE WHEN s.ctid = net.one THEN net.n ELSE 0 END FROM"
        " (SELECT {image} AS image, (array_agg(s.ctid))[1] AS one, sum(s.n) AS n"
        " FROM {staging} s WHERE {parts} GROUP BY 1 HAVING count(*) > 1) net"
        " WHERE {parts} AND {image} = net.image"
    ).format(staging=stage.staging_id, image=_staged_image(stage), parts=_PARTS)


def count_counts(stage: Stage) -> Statement:
    """How many rows are to be added, and how many to be removed."""
    return sql.SQL(
        "SELECT coalesce(sum(s.n) FILTER (WHERE s.n > 0), 0)::bigint,"
        " coalesce(-sum(s.n) FILTER (WHERE s.n < 0), 0)::bigint FROM {} s WHERE {}"
    ).format(stage.staging_id, _PARTS)


def remove_counted(stage: Stage) -> Statement:
    """Remove as many of each row as the staged counts say; of equal rows, any."""
    columns = [_identifier("t", column.name) for column in stage.columns]
    return sql.SQL(
        "WITH gone AS MATERIALIZED (SELECT {image} AS image, -s.n AS n FROM {staging} s"
        " WHERE {parts} AND s.n < 0),"
        " found AS MATERIALIZED (SELECT t.tableoid AS part, t.ctid AS place, gone.n,"
        " row_number() OVER (PARTITION BY gone.image) AS number"
        " FROM {target} t JOIN gone ON {row} = gone.image)"
        " DELETE FROM {target} t USING found WHERE found.number <= found.n"
        " AND t.tableoid = found.part AND t.ctid = found.place"
    ).format(
        image=_staged_image(stage),
        staging=stage.staging_id,
        parts=_PARTS,
        target=target(stage),
        row=_image(stage, columns),
    )


def row_ids(stage: Stage) -> Statement:
    """The rows that ``insert`` would add, by their ctid."""
    if stage.kind == "keyed":
        wanted = sql.SQL("s.op IN ('I', 'U', 'K')")
    else:
        wanted = sql.SQL("s.n > 0" if stage.kind == "counted" else "true")
    return sql.SQL("SELECT s.ctid::text FROM {} s WHERE {} AND {} ORDER BY s.ctid").format(
        stage.staging_id, _PARTS, wanted
    )


def unmatched(stage: Stage, *, incomplete: bool) -> Statement:
    """Rows that were there before the batch at the source, and are not in the target.

    With ``incomplete`` only those that cannot be made anew, since some columns were not sent.
    """
    wanted = (
        "s.op IN ('U', 'K') AND s.unset IS NOT NULL" if incomplete else "s.op IN ('U', 'K', 'D')"
    )
    return sql.SQL(
        "SELECT s.ctid::text FROM {} s WHERE {} AND {} AND NOT EXISTS"
        " (SELECT FROM {} t WHERE {}) ORDER BY s.commit_lsn, s.ordinal"
    ).format(
        stage.staging_id,
        _PARTS,
        sql.SQL(wanted),
        target(stage),
        _same_key(stage, _key_before(stage, rekeys=True)),
    )


def forget_row(stage: Stage) -> Statement:
    """Let a staged row do nothing."""
    return sql.SQL("UPDATE {} s SET op = '-' WHERE s.ctid = %(row)s::tid").format(stage.staging_id)


def upsert(stage: Stage) -> Statement:
    """Put every whole row where it belongs, whether or not there is one. For replayed rows."""
    sets = _comma(
        sql.SQL("{0} = excluded.{0}").format(_name(stage, index))
        for index in range(len(stage.columns))
        if index not in stage.key
    )
    action = sql.SQL("UPDATE SET {}").format(sets) if sets.as_string(None) else sql.SQL("NOTHING")
    return sql.SQL("{} AND s.unset IS NULL ON CONFLICT ({}) DO {}").format(
        insert(stage, "U"), _comma(_name(stage, index) for index in stage.key), action
    )


def delete_outdated(stage: Stage, unique: Sequence[int]) -> Statement:
    """Remove rows that have what whole staged ones of another key take. For replayed rows.

    Such a row is of another time than the staged one, and a change of it is still to come.
    """
    return sql.SQL(
        "DELETE FROM {} t USING {} s WHERE {} AND s.op = 'U' AND s.unset IS NULL AND {}"
        " AND NOT ({})"
    ).format(
        target(stage),
        stage.staging_id,
        _PARTS,
        _and(
            sql.SQL("{} = {}").format(
                _identifier("t", stage.columns[index].name), _value(stage, index)
            )
            for index in unique
        ),
        _same_key(stage, _key_after(stage)),
    )


def park(stage: Stage) -> Statement:
    """Remember the keys of replayed rows that are not known whole, after ``complete``."""
    key = _comma(sql.SQL("{}::text").format(_c(index)) for index in stage.key)
    return sql.SQL(
        "INSERT INTO penstock.parked_key (pipeline, source_table, key)"
        " SELECT %(pipeline)s, {}, ARRAY[{}] FROM {} s"
        " WHERE {} AND (s.op = 'P' OR s.op = 'U' AND s.unset IS NOT NULL)"
    ).format(sql.Literal(stage.oid), key, stage.staging_id, _PARTS)


def forget_parked(stage: Stage) -> Statement:
    """Let staged rows do nothing that were parked."""
    return sql.SQL(
        "UPDATE {} s SET op = '-' WHERE {} AND s.op = 'U' AND s.unset IS NOT NULL"
    ).format(stage.staging_id, _PARTS)


def staged_row(stage: Stage) -> Statement:
    """One staged row for a person: its position, how many of it, its op, its values as texts.

    A value that is not known is null, and its column among the unset ones.
    """
    is_counted = stage.kind == "counted"
    op = sql.SQL("CASE WHEN s.n > 0 THEN 'I' ELSE 'D' END" if is_counted else "s.op")
    number = sql.SQL("abs(s.n)" if is_counted else "1")
    unset = sql.SQL("s.unset" if stage.kind == "keyed" else "NULL::smallint[]")
    values = [sql.SQL("{}::text").format(_c(index)) for index in range(len(stage.columns))]
    return sql.SQL("SELECT {} FROM {} s WHERE s.ctid = %(row)s::tid").format(
        _comma(
            [
                sql.SQL("s.commit_lsn, s.ordinal"),
                number,
                unset,
                sql.SQL("{}::text").format(op),
                *values,
            ]
        ),
        stage.staging_id,
    )


BEFORE = sql.Identifier("pg_temp", "penstock_before")
"""Rows of the target as they were, while they are made anew."""


def save_before(stage: Stage) -> Statement:
    """Keep the rows as they are in the target, by the ctid of their staged row."""
    return sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS {}").format(
        BEFORE, _before(stage, "'U', 'K'")
    )


def save_in_the_way(stage: Stage) -> Statement:
    """Keep also rows that stand where a new one is to be put."""
    return sql.SQL("INSERT INTO {} {}").format(BEFORE, _before(stage, "'I'"))


def _own_columns(stage: Stage) -> list[str]:
    return [*(column.name for column in stage.columns), *stage.extras]


def _before(stage: Stage, ops: str) -> Statement:
    names = [_identifier("t", name) for name in _own_columns(stage)]
    return sql.SQL("SELECT {} FROM {} t JOIN {} s ON {} WHERE {} AND s.op IN ({})").format(
        _comma([sql.SQL("s.ctid::text AS _row"), *names]),
        target(stage),
        stage.staging_id,
        _same_key(stage, _key_before(stage, rekeys=True)),
        _PARTS,
        sql.SQL(ops),
    )


def restore_before(stage: Stage) -> Statement:
    """Put one row back as it was."""
    names = _comma(map(_identifier, _own_columns(stage)))
    return sql.SQL(
        "INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM {} WHERE _row = %(row)s"
    ).format(target(stage), names, names, BEFORE)
