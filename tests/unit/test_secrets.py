"""Nothing in the repository looks like a secret, but for what is explained here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from detect_secrets.core.secrets_collection import SecretsCollection
from detect_secrets.filters import common
from detect_secrets.settings import default_settings

ROOT = Path(__file__).resolve().parents[2]

# By file and the beginning of the hash that detect-secrets gives it, which does not tell it.
EXPLAINED: dict[tuple[str, str], str] = {
    ("bench/jdbc_driver.py", "d351a645"): "the checksum of a driver",
    ("tests/contract/test_delta_objects.py", "e511c7c4"): "planted, to be looked for",
    ("docs/change_json.md", "d5e67164"): "the version of a schema",
    ("docs/pipeline_file.md", "5baa61e4"): "shows where a password stands",
    ("src/penstock/cli/main.py", "e5e9fa1b"): "shows where a password stands",
    ("src/penstock/destination/rabbitmq/options.py", "5baa61e4"): "shows where a password stands",
    ("src/penstock/spark/table_read_settings.py", "5baa61e4"): "shows where a password stands",
    ("tests/contract/test_iceberg.py", "5459f7a2"): "must not be shown",
    ("tests/unit/test_snowflake.py", "83a5b8a7"): "must not be shown",
    ("tests/unit/test_lost_connections.py", "6d613a1e"): "is a word of what a server says",
    ("tests/unit/test_lost_connections.py", "e5e9fa1b"): "of a server that asks for none",
    ("tests/golden/debezium/messages/numbers_precise.jsonl", "84f79784"): "a number",
    ("tests/golden/debezium/messages/numbers_precise.jsonl", "ba9e6aa4"): "a number",
    ("tests/golden/debezium/regenerate.py", "71f8e797"): "of a server that asks for none",
    ("tests/integration/test_filtered_rows.py", "c2a6b03f"): "a value in a column of that name",
    ("tests/integration/test_filtered_rows.py", "a68439d7"): "a value in a column of that name",
    ("tests/integration/test_kafka_secured.py", "f3bbbd66"): "of a broker that lives for one test",
    ("tests/integration/test_serve_api.py", "f3bbbd66"): "must not be shown",
    ("tests/integration/test_object_files.py", "a4b48a81"): "is refused",
    ("tests/integration/test_rabbitmq_delivery.py", "a4b48a81"): "is refused",
    ("tests/objects_server.py", "ff5eee38"): "of a store that lives for one test",
    ("tests/kafka_server.py", "95797b2a"): "of a broker that lives for one test",
    ("tests/unit/test_anonymizer.py", "f3bbbd66"): "must not be printed",
    ("tests/unit/test_cli.py", "f3bbbd66"): "must not be printed",
    ("tests/unit/test_config_connection_url.py", "2ed0f475"): "must not be printed",
    ("tests/unit/test_config_load.py", "1a91d62f"): "must not be printed",
    ("tests/unit/test_config_load.py", "f3bbbd66"): "must not be printed",
    ("tests/unit/test_kafka_options.py", "e5e9fa1b"): "must not be printed",
    ("tests/unit/test_search_values.py", "99d72c7f"): "must not be printed",
    ("tests/unit/test_search_values.py", "e5e9fa1b"): "is refused",
    ("tests/unit/test_webhook_guard.py", "1a91d62f"): "is refused",
    ("tests/unit/test_webhook_guard.py", "2d7fed8c"): "of receivers that live for one test",
    ("tests/unit/test_webhook_guard.py", "a0f4ea7d"): "of receivers that live for one test",
    ("tests/unit/test_webhook_guard.py", "b6df346d"): "of receivers that live for one test",
    ("tests/unit/test_types_numbers.py", "e5a2761d"): "a uuid",
}


def files(part: str) -> list[str]:
    """What git knows below a folder, or with "" beside all folders of this list."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = [name for name in listed.stdout.split("\0") if name]
    # Hashes of packages.
    found = [name for name in found if not name.startswith("requirements/")]
    folder = {name: name.partition("/")[0] for name in found}
    return [name for name in found if (folder[name] if folder[name] in PARTS else "") == part]


PARTS = ("", "src", "tests")


@pytest.mark.parametrize("part", PARTS)
def test_no_secrets(part: str) -> None:
    found = SecretsCollection(root=str(ROOT))
    with default_settings() as settings:
        # It would ask whoever the secret is for whether it is right.
        settings.disable_filters(f"{common.__name__}.is_ignored_due_to_verification_policies")
        for name in files(part):
            found.scan_file(name)
    unexplained = {
        (name, secret.secret_hash[:8], secret.type, secret.line_number)
        for name, secret in found
        if (name, secret.secret_hash[:8]) not in EXPLAINED
    }
    assert not unexplained, "remove them; or explain them in EXPLAINED, if they are none"
