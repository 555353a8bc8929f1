"""How far a pipeline has read its topics. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class TopicStatus:
    """``behind`` are messages, by offsets, that the change log does not hold yet, by topic."""

    brokers: str
    group: str
    behind: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        return {"type": "kafka", **asdict(self), "lag_messages": sum(self.behind.values())}

    def lines(self) -> list[str]:
        """For people."""
        late = [f"{topic} ({count})" for topic, count in sorted(self.behind.items()) if count]
        more = f": {', '.join(late[:5])}" if late else ""
        return [
            f"topics        {len(self.behind)} of {self.brokers}, group {self.group}",
            f"lag           {sum(self.behind.values())} messages{more}",
        ]
