"""What of an archive is made at the destination, by what a person calls it. No I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence

from penstock.destination.postgres.options import FullSchemaOptions
from penstock.source.postgres.whole_schema.archive import Entry

# pg_dump's words. What is not among them belongs to tables and is always made.
_KINDS = {
    "ACCESS METHOD": "access_methods",
    "AGGREGATE": "functions",
    "CAST": "casts",
    "COLLATION": "collations",
    "COMMENT": "comments",
    "CONVERSION": "conversions",
    "DOMAIN": "types",
    "EVENT TRIGGER": "event_triggers",
    "EXTENSION": "extensions",
    "FOREIGN DATA WRAPPER": "foreign_data",
    "FOREIGN TABLE": "foreign_data",
    "FUNCTION": "functions",
    "MATERIALIZED VIEW": "materialized_views",
    "OPERATOR": "operators",
    "OPERATOR CLASS": "operators",
    "OPERATOR FAMILY": "operators",
    "POLICY": "policies",
    "PROCEDURAL LANGUAGE": "languages",
    "PROCEDURE": "functions",
    "ROW SECURITY": "policies",
    "RULE": "rules",
    "SEQUENCE": "sequences",
    "SERVER": "foreign_data",
    "SHELL TYPE": "types",
    "STATISTICS": "statistics",
    "TEXT SEARCH CONFIGURATION": "text_search",
    "TEXT SEARCH DICTIONARY": "text_search",
    "TEXT SEARCH PARSER": "text_search",
    "TEXT SEARCH TEMPLATE": "text_search",
    "TRANSFORM": "transforms",
    "TRIGGER": "triggers",
    "TYPE": "types",
    "USER MAPPING": "foreign_data",
    "VIEW": "views",
}
_NEVER = {"DATABASE", "DATABASE PROPERTIES", "ENCODING", "SEARCHPATH", "STDSTRINGS"}
_PRIVILEGES = {"ACL", "DEFAULT ACL"}
_OWN_TRIGGER = re.compile(r'EXECUTE (?:FUNCTION|PROCEDURE) "?penstock(?:_ddl)?"?\.')


def wanted_entries(entries: Sequence[Entry], options: FullSchemaOptions) -> list[Entry]:
    """Those that the options ask for, without what belongs to what was left out."""
    left_out: set[int] = set()
    wanted = []
    for entry in entries:
        # A comment on a view goes with the view; a view on a view has to tell by itself.
        is_part = entry.catalogue == 0 and left_out.intersection(entry.needs)
        if is_part or not _takes(entry, options):
            left_out.add(entry.id)
        else:
            wanted.append(entry)
    return wanted


def comes_after(entry: Entry) -> bool:
    """Whether it waits for the rows. So do grants: they may take away what writing needs."""
    return entry.section == "post" or entry.kind in _PRIVILEGES


def _takes(entry: Entry, options: FullSchemaOptions) -> bool:
    if entry.kind in _NEVER or entry.name.startswith("DATABASE "):
        return False
    if entry.kind in _PRIVILEGES:
        return options.privileges
    if entry.kind == "EVENT TRIGGER" and _OWN_TRIGGER.search(entry.statement):
        return False
    if entry.kind == "RULE" and entry.name.endswith(" _RETURN"):
        # A view that comes in two parts.
        return options.takes("views")
    if entry.kind == "SEQUENCE" and not entry.drop:
        return True  # of an identity column: a part of its table
    return options.takes(_KINDS.get(entry.kind, "tables")) or entry.kind not in _KINDS
