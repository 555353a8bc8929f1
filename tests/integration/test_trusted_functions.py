"""Which of the server's own functions may be called at the destination, version by version."""

from __future__ import annotations

import psycopg
import pytest

from penstock.source.postgres.catalogue.trust import Trust

pytestmark = pytest.mark.every_postgres

# Not volatile, nevertheless they read what the destination's role may read.
READ_MORE = """
table_to_xml schema_to_xml database_to_xml table_to_xmlschema schema_to_xmlschema
database_to_xmlschema table_to_xml_and_xmlschema query_to_xml query_to_xmlschema
cursor_to_xml cursor_to_xmlschema current_setting has_table_privilege to_regclass
pg_get_viewdef pg_get_functiondef obj_description pg_relation_filepath ts_stat ts_rewrite
inet_client_addr txid_current pg_read_file pg_read_binary_file pg_ls_dir pg_stat_file
lo_import lo_get set_config pg_sleep pg_terminate_backend currval
"""
ORDINARY = """
now date_trunc date_part to_char to_timestamp lower upper length substring replace btrim md5
abs round concat array_to_string jsonb_build_object to_tsvector nextval gen_random_uuid random
clock_timestamp starts_with regexp_replace int4range jsonb_typeof cardinality array_length
"""


def test_what_reads_more_than_its_arguments_is_left_out(database: str) -> None:
    with psycopg.connect(database) as conn:
        trusted = Trust.read(conn, "built_in").built_in
        known = {name for (name,) in conn.execute("SELECT proname::text FROM pg_proc")}
    assert [name for name in READ_MORE.split() if name in trusted] == []
    assert [name for name in ORDINARY.split() if name not in trusted] == []
    # Otherwise the list says nothing.
    assert [name for name in READ_MORE.split() if name not in known] == []
