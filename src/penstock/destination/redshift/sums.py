"""How Redshift writes what `penstock verify` adds up."""

from __future__ import annotations

from penstock.destination.families.warehouse.sums import SumWords
from penstock.destination.protocols import BEGINNING

_MICROS = "CAST(DATEDIFF(us, {}, {{0}}) AS VARCHAR(20))"
_EPOCH = "TIMESTAMP '1970-01-01 00:00:00'"

WORDS = SumWords(
    texts={
        # A text has 65,535 bytes at most.
        "bytea": "CAST(OCTET_LENGTH({0}) AS VARCHAR(20)) || ':' || "
        f"LOWER(TO_HEX(SUBSTRING({{0}}, 1, {BEGINNING})))",
        "date": "CAST(DATEDIFF(day, DATE '1970-01-01', {0}) AS VARCHAR(20))",
        "time": _MICROS.format("TIME '00:00:00'"),
        "timestamp": _MICROS.format(_EPOCH),
        "timestamptz": f"CAST(DATEDIFF(us, {_EPOCH}, {{0}} AT TIME ZONE 'UTC') AS VARCHAR(20))",
        "text": "{0}",
    },
    digest="MD5({0})",
    number="CAST(STRTOL(LEFT({0}, 15), 16) AS DECIMAL(38,0))",
    numeric="CAST({0} AS VARCHAR(50))",
    other="CAST({0} AS VARCHAR(50))",
    concatenates_all=False,
    summed={"bytea": "beginning"},
)
