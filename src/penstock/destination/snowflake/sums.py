"""How Snowflake writes what `penstock verify` adds up."""

from __future__ import annotations

from penstock.destination.families.warehouse.sums import SumWords

_MICROS = "CAST(DATE_PART(EPOCH_MICROSECOND, {0}) AS VARCHAR)"

WORDS = SumWords(
    texts={
        "bytea": "LOWER(HEX_ENCODE({0}))",
        "date": "CAST(DATEDIFF(DAY, DATE '1970-01-01', {0}) AS VARCHAR)",
        "time": "CAST(DATEDIFF(MICROSECOND, TIME '00:00:00', {0}) AS VARCHAR)",
        "timestamp": _MICROS,
        "timestamptz": _MICROS,
        "text": "{0}",
        "uuid": "{0}",
    },
    digest="MD5({0})",
    number=f"TO_NUMBER(LEFT({{0}}, 15), '{'X' * 15}')",
    other="CAST({0} AS VARCHAR)",
)
