"""Which golden messages there are: a SQL file under some settings of Debezium's engine each.

tests/captured_sql.py says how the SQL files are made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.captured_sql import statements

FOLDER = Path(__file__).parent
SERVER = "shop"
"""What Debezium calls topic.prefix."""
DATABASE = "golden"


@dataclass(frozen=True)
class Scenario:
    """One file of messages. ``settings`` are the engine's, beside those that all have.

    With ``copied`` all statements come before: the engine copies what they leave.
    """

    name: str
    sql: str
    settings: Mapping[str, str] = field(default_factory=dict)
    copied: bool = False

    @property
    def messages(self) -> Path:
        return FOLDER / "messages" / f"{self.name}.jsonl"

    def statements(self) -> tuple[list[str], list[str]]:
        """Those that come before, and those that are streamed."""
        before, streamed = statements(FOLDER / "sql" / f"{self.sql}.sql")
        return (before + streamed, []) if self.copied else (before, streamed)


SCENARIOS = (
    Scenario("row_changes", "row_changes"),
    Scenario("row_changes_schemas", "row_changes", {"converter.schemas.enable": "true"}),
    Scenario("identities", "identities"),
    Scenario("toast", "toast"),
    Scenario("toast_hex", "toast", {"binary.handling.mode": "hex"}),
    Scenario("truncate", "truncate", {"skipped.operations": "none"}),
    Scenario("logical_messages", "logical_messages"),
    Scenario("logical_messages_schemas", "logical_messages", {"converter.schemas.enable": "true"}),
    Scenario("transactions", "transactions", {"provide.transaction.metadata": "true"}),
    Scenario("snapshot", "snapshot", {"snapshot.mode": "initial"}),
    # Without the second setting a null comes as the column's default.
    Scenario(
        "defaults",
        "defaults",
        {"converter.schemas.enable": "true", "converter.replace.null.with.default": "false"},
    ),
    Scenario("schemas_plain", "schemas", {"converter.schemas.enable": "true"}),
    Scenario(
        "schemas_connect",
        "schemas",
        {
            "converter.schemas.enable": "true",
            "time.precision.mode": "connect",
            "decimal.handling.mode": "string",
            "interval.handling.mode": "string",
            "binary.handling.mode": "hex",
        },
    ),
    Scenario(
        "schemas_microseconds",
        "schemas",
        {
            "converter.schemas.enable": "true",
            "time.precision.mode": "adaptive_time_microseconds",
            "decimal.handling.mode": "double",
            "binary.handling.mode": "base64",
        },
    ),
    Scenario("types", "types"),
    Scenario("types_schemas", "types", {"converter.schemas.enable": "true"}),
    Scenario("types_copied", "types", {"snapshot.mode": "initial"}, copied=True),
    Scenario("numbers_precise", "numbers"),
    Scenario("numbers_string", "numbers", {"decimal.handling.mode": "string"}),
    Scenario("numbers_double", "numbers", {"decimal.handling.mode": "double"}),
    Scenario("not_numbers_string", "not_numbers", {"decimal.handling.mode": "string"}),
    Scenario("not_numbers_double", "not_numbers", {"decimal.handling.mode": "double"}),
    Scenario("times_adaptive", "times"),
    Scenario("times_microseconds", "times", {"time.precision.mode": "adaptive_time_microseconds"}),
    Scenario("times_connect", "times", {"time.precision.mode": "connect"}),
    Scenario("intervals_numeric", "intervals"),
    Scenario("intervals_string", "intervals", {"interval.handling.mode": "string"}),
    Scenario("binary_bytes", "binary"),
    Scenario("binary_base64", "binary", {"binary.handling.mode": "base64"}),
    Scenario("binary_base64_url", "binary", {"binary.handling.mode": "base64-url-safe"}),
    Scenario("binary_hex", "binary", {"binary.handling.mode": "hex"}),
)
