"""How BigQuery writes what `penstock verify` adds up."""

from __future__ import annotations

from penstock.destination.families.warehouse.sums import SumWords

WORDS = SumWords(
    texts={
        "bytea": "TO_HEX({0})",
        "date": "CAST(UNIX_DATE({0}) AS STRING)",
        "time": "CAST(TIME_DIFF({0}, TIME '00:00:00', MICROSECOND) AS STRING)",
        "timestamp": "CAST(DATETIME_DIFF({0}, DATETIME '1970-01-01 00:00:00', MICROSECOND)"
        " AS STRING)",
        "timestamptz": "CAST(UNIX_MICROS({0}) AS STRING)",
        "text": "{0}",
        "uuid": "{0}",
    },
    digest="TO_HEX(MD5({0}))",
    number="CAST(CAST(CONCAT('0x', SUBSTR({0}, 1, 15)) AS INT64) AS BIGNUMERIC)",
    numeric="FORMAT('%.{1}f', {0})",  # 1.50 stays 1.50
    other="CAST({0} AS STRING)",
)
