"""The session settings under which values have one text, wherever they are read."""

from __future__ import annotations

# Values must come in one text form, whatever the database's or role's settings are.
VALUE_SETTINGS = (
    "SET client_encoding TO 'UTF8'",
    "SET datestyle TO 'ISO'",
    "SET intervalstyle TO 'postgres'",
    "SET timezone TO 'UTC'",
    "SET bytea_output TO 'hex'",
    "SET extra_float_digits TO 3",
    "SET lc_monetary TO 'C'",
    # regclass and its like are names, which say their schema where it is not on the path.
    "SET search_path TO ''",
    "SET quote_all_identifiers TO off",
)
