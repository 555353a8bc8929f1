"""Which texts of a catalogue may run at a destination."""

from __future__ import annotations

import pytest

from penstock.model.table_definition import (
    ColumnDefinition,
    ConstraintDefinition,
    IndexDefinition,
    TableDefinition,
    TypeDefinition,
    TypeName,
)
from penstock.source.postgres.catalogue.trust import NotTrusted, Trust, Trusted

BUILT_IN = frozenset({"abs", "lower", "upper", "now", "nextval"})
TRUST = Trust("built_in", BUILT_IN)
INT = TypeName("pg_catalog", "integer")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("expression", "0"),
        ("expression", "'it''s; DROP TABLE x --'::text"),
        ("expression", r"E'a\\b\'c'::text"),
        ("expression", "nextval('public.items_id_seq'::regclass)"),
        ("expression", "'calm'::public.mood"),
        ("expression", "'01010'::\"bit\""),
        ("expression", "(now() + '1 day'::interval)"),
        ("expression", "((a)::numeric(10,2) * 2.50e-3)"),
        ("expression", "('x'::character varying(10))::text"),
        ("expression", "('1'::bit varying(3) || '0'::bit varying(3))"),
        ("expression", "ST::public.geometry(Point,4326)"),
        ("expression", "COALESCE(NULLIF(a, ''::text), 'none'::text)"),
        ("expression", "CASE WHEN (a > 0) THEN upper(b) ELSE NULL::text END"),
        ("expression", 'EXTRACT(year FROM "When")'),
        ("expression", "(a OPERATOR(pg_catalog.+) 1)"),
        ("expression", "(doc #>> '{a,b}'::text[])"),
        ("expression", "ARRAY[1, 2]"),
        ("check", "CHECK (((price > (0)::numeric) AND (note !~~* 'x%'::text)))"),
        ("check", "CHECK ((a > 0)) NOT VALID"),
        ("unique", "UNIQUE NULLS NOT DISTINCT (a, b) INCLUDE (c) DEFERRABLE"),
        ("foreign", "FOREIGN KEY (a, b) REFERENCES public.other(id, n) ON DELETE CASCADE"),
        ("exclude", "EXCLUDE USING gist (during WITH &&) WHERE ((a > 0))"),
        ("index", "USING btree (lower(label) DESC NULLS LAST, id) WHERE (NOT gone)"),
        ("index", "USING gin (label public.gin_trgm_ops) WITH (fastupdate='off')"),
        ("domain", 'CONSTRAINT "Odd; name" CHECK ((VALUE > 0))'),
    ],
)
def test_what_servers_write_passes(kind: str, text: str) -> None:
    TRUST.check(kind, text)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("expression", ""),
        ("expression", "0; DROP TABLE x"),
        ("expression", "0, ADD COLUMN y int"),
        ("expression", "0) + (1"),
        ("expression", "(0"),
        ("expression", "[1)"),
        ("expression", "0 -- the rest"),
        ("expression", "0 /* rest */"),
        ("expression", "$$text$$"),
        ("expression", "'open"),
        ("expression", "pg_sleep((10)::double precision)"),
        ("expression", "pg_catalog.pg_read_file('/etc/passwd'::text)"),
        ("expression", "\"query_to_xml\"('DELETE FROM x'::text, true, false, ''::text)"),
        ("expression", "pg_catalog.table_to_xml('secret'::regclass, true, false, ''::text)"),
        ("expression", "current_setting('app.secret'::text)"),
        ("expression", "public.f()"),
        ("expression", 'public."F"()'),
        ("expression", '"Pub""lic".f ()'),
        ("expression", "public.\nf(1)"),
        ("expression", 'public.U&"\\0066"(1)'),
        ("expression", "(a OPERATOR(public.+) b)"),
        ("expression", "upper(public.f(a))"),
        ("check", "0"),
        ("check", "UNIQUE (a)"),
        ("check", "CHECK (true), ADD CHECK (false)"),
        ("check", "CHECK (public.is_good(a))"),
        ("index", "(a)"),
        ("index", "USING btree (public.f(a))"),
        ("index", "USING btree (a) WHERE public.f(a)"),
        ("foreign", "CHECK (true)"),
        ("domain", "CHECK ((VALUE > 0))"),
    ],
)
def test_what_else_stands_there_does_not(kind: str, text: str) -> None:
    with pytest.raises(NotTrusted):
        TRUST.check(kind, text)


@pytest.mark.parametrize("setting", ["all", ["public.f", "public.+"]])
def test_more_can_be_trusted_but_it_has_to_be_one_clause(setting: Trusted) -> None:
    trust = Trust(setting, BUILT_IN)
    trust.check("expression", "(public.f(a) OPERATOR(public.+) 1)")
    with pytest.raises(NotTrusted):
        trust.check("expression", "public.f(a), DROP COLUMN b")
    if setting != "all":
        named = Trust(["pg_catalog.current_setting"], BUILT_IN)
        named.check("expression", "current_setting('app.tenant'::text)")
        with pytest.raises(NotTrusted):
            trust.check("expression", "public.g(a)")


def test_a_table_goes_without_what_is_not_trusted_and_says_so() -> None:
    def table(call: str) -> TableDefinition:
        return TableDefinition(
            1, "public", "items", "d",
            columns=(
                ColumnDefinition(1, "id", INT, default=f"{call}(1)"),
                ColumnDefinition(2, "twice", INT, generated=f"({call}(id))", published=False),
                ColumnDefinition(3, "plain", INT, default="7"),
            ),
            types=(
                TypeDefinition(
                    "public", "amount", "domain", base=INT, default=f"{call}(2)",
                    constraints=(f"CONSTRAINT c CHECK (({call}(VALUE) > 0))",),
                ),
            ),
            indexes=(IndexDefinition("by_f", False, f"USING btree ({call}(id))"),),
            constraints=(ConstraintDefinition("good", "check", f"CHECK (({call}(id) > 0))"),),
        )  # fmt: skip

    assert TRUST.judged(table("abs")) == table("abs")
    assert TRUST.judged(table("abs")).left_out == ()
    judged = TRUST.judged(table("public.f"))
    assert [(c.default, c.generated) for c in judged.columns] == [
        (None, None),
        (None, None),
        ("7", None),
    ]
    assert (judged.types[0].default, judged.types[0].constraints) == (None, ())
    assert (judged.indexes, judged.constraints) == ((), ())
    why = "public.f is not built in; schema_changes.trust can allow it"
    assert judged.left_out == tuple(
        f"{what} is left out: {why}"
        for what in (
            "the default of column id", "the expression of column twice",
            "the default of domain amount", "a check of domain amount", "index by_f",
            "constraint good",
        )
    )  # fmt: skip
