"""Who asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["read", "operate"]

ROLES: tuple[Role, ...] = ("read", "operate")


@dataclass(frozen=True)
class Identity:
    """``token`` is the id of the token that it comes from; "" for one without."""

    name: str
    role: Role
    token: str = ""

    @property
    def may_operate(self) -> bool:
        return self.role == "operate"
