"""Who asks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Role = Literal["read", "operate"]

ROLES: tuple[Role, ...] = ("read", "operate")


@dataclass(frozen=True)
class Identity:
    """``token`` is the id of the token that it comes from; "" for one without. ``until`` is when
    the session ends, in seconds since 1970; 0 for a request that brought its token.
    """

    name: str
    role: Role
    token: str = ""
    until: float = field(default=0.0, compare=False)

    @property
    def may_operate(self) -> bool:
        return self.role == "operate"
