"""The built-in types of Postgres 14 to 18, and how a type is spelled. No I/O.

Built-in oids never change between versions: the table was read from pg_type of 18 and is the
same in 14. Types that users or extensions create have oids from 16384 on, which only the
catalogue of their database can explain.
"""

from __future__ import annotations

from functools import cache

from penstock.model.table_schema import PgType, TypeKind

FIRST_USER_OID = 16384

# name, oid, oid of its array type (0: it has none)
_BASE = """
    bool 16 1000, bytea 17 1001, char 18 1002, name 19 1003, int8 20 1016, int2 21 1005,
    int2vector 22 1006, int4 23 1007, regproc 24 1008, text 25 1009, oid 26 1028, tid 27 1010,
    xid 28 1011, cid 29 1012, oidvector 30 1013, json 114 199, xml 142 143, pg_node_tree 194 0,
    point 600 1017, lseg 601 1018, path 602 1019, box 603 1020, polygon 604 1027, line 628 629,
    cidr 650 651, float4 700 1021, float8 701 1022, circle 718 719, macaddr8 774 775,
    money 790 791, macaddr 829 1040, inet 869 1041, aclitem 1033 1034, bpchar 1042 1014,
    varchar 1043 1015, date 1082 1182, time 1083 1183, timestamp 1114 1115,
    timestamptz 1184 1185, interval 1186 1187, timetz 1266 1270, bit 1560 1561,
    varbit 1562 1563, numeric 1700 1231, refcursor 1790 2201, regprocedure 2202 2207,
    regoper 2203 2208, regoperator 2204 2209, regclass 2205 2210, regtype 2206 2211,
    uuid 2950 2951, txid_snapshot 2970 2949, pg_lsn 3220 3221, pg_ndistinct 3361 0,
    pg_dependencies 3402 0, tsvector 3614 3643, tsquery 3615 3645, gtsvector 3642 3644,
    regconfig 3734 3735, regdictionary 3769 3770, jsonb 3802 3807, jsonpath 4072 4073,
    regnamespace 4089 4090, regrole 4096 4097, regcollation 4191 4192,
    pg_brin_bloom_summary 4600 0, pg_brin_minmax_multi_summary 4601 0, pg_mcv_list 5017 0,
    pg_snapshot 5038 5039, xid8 5069 271
"""
_RANGE = """
    int4range 3904 3905, numrange 3906 3907, tsrange 3908 3909, tstzrange 3910 3911,
    daterange 3912 3913, int8range 3926 3927
"""
_MULTIRANGE = """
    int4multirange 4451 6150, nummultirange 4532 6151, tsmultirange 4533 6152,
    tstzmultirange 4534 6153, datemultirange 4535 6155, int8multirange 4536 6157
"""


def builtin_type(oid: int) -> PgType | None:
    """The built-in type of this oid; None for user-defined, pseudo and catalogue row types."""
    return _builtin_types().get(oid)


@cache
def _builtin_types() -> dict[int, PgType]:
    types: dict[int, PgType] = {}
    tables: tuple[tuple[TypeKind, str], ...] = (
        ("base", _BASE),
        ("range", _RANGE),
        ("multirange", _MULTIRANGE),
    )
    for kind, table in tables:
        for entry in table.split(","):
            name, oid, array_oid = entry.split()
            scalar = PgType(int(oid), name, kind)
            types[scalar.oid] = scalar
            if array_oid != "0":
                types[int(array_oid)] = PgType(int(array_oid), f"_{name}", "array", scalar)
    return types


def numeric_modifier(typmod: int) -> tuple[int, int] | None:
    """Precision and scale of a numeric's modifier; None where it is unconstrained."""
    if typmod < 4:
        return None
    precision = (typmod - 4) >> 16
    # Since 15 the scale is signed, in 11 bits.
    scale = (((typmod - 4) & 0x7FF) ^ 0x400) - 0x400
    return precision, scale


def type_name(pg_type: PgType, typmod: int = -1) -> str:
    """The type as SQL spells it, with its modifier: ``numeric(10,2)[]``, ``varchar(32)``.

    A modifier of a user-defined type is left out: only its own output function can print it.
    """
    if pg_type.kind == "array" and pg_type.inner is not None:
        return type_name(pg_type.inner, typmod) + "[]"
    if pg_type.kind != "base" or pg_type.oid >= FIRST_USER_OID:
        return pg_type.name
    if pg_type.name == "char":
        return '"char"'  # without the quotes SQL reads it as character(1)
    if typmod < 0:
        return pg_type.name
    if pg_type.name == "numeric":
        modifier = numeric_modifier(typmod)
        return "numeric" if modifier is None else f"numeric({modifier[0]},{modifier[1]})"
    if pg_type.name in ("varchar", "bpchar"):
        return f"{pg_type.name}({typmod - 4})"  # the modifier counts a 4-byte header
    if pg_type.name in ("bit", "varbit", "time", "timetz", "timestamp", "timestamptz"):
        return f"{pg_type.name}({typmod})"
    if pg_type.name == "interval":
        return _interval_name(typmod)
    return pg_type.name


_INTERVAL_FIELDS = ((2, "year"), (1, "month"), (3, "day"), (10, "hour"), (11, "minute"))


def _interval_name(typmod: int) -> str:
    """An interval's modifier: a mask of fields above 16 bits of seconds precision."""
    mask, precision = typmod >> 16, typmod & 0xFFFF
    digits = "" if precision == 0xFFFF else f"({precision})"
    if mask == 0x7FFF:
        return f"interval{digits}"
    fields = [name for bit, name in (*_INTERVAL_FIELDS, (12, "second")) if mask & (1 << bit)]
    if not fields:
        return "interval"
    span = fields[0] if len(fields) == 1 else f"{fields[0]} to {fields[-1]}"
    return f"interval {span}{digits}"
