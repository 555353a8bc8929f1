"""The part ``metrics`` of the pipeline file: where statistics can be had."""

from __future__ import annotations

import re
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from penstock.config.quantities import Duration

DEFAULT_PORT = 8719

_ADDRESS = re.compile(r"(?:(\[[0-9a-fA-F:.]+\]|[^\s:\[\]/]+):)?([0-9]{1,5})")


class ListenAddress(NamedTuple):
    """Where to listen, or to send to. Port 0: one that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _address(value: object) -> ListenAddress:
    if isinstance(value, ListenAddress):
        return value
    match = _ADDRESS.fullmatch(str(value)) if isinstance(value, str | int) else None
    if match is None or isinstance(value, bool) or int(match[2]) > 65535:
        raise PydanticCustomError(
            "address", "Input should be an address such as 127.0.0.1:8719, or a port"
        )
    return ListenAddress((match[1] or "127.0.0.1").strip("[]"), int(match[2]))


AddressText = Annotated[ListenAddress, BeforeValidator(_address)]


def _report(value: object) -> object:
    """true stands for all defaults, false for none."""
    if isinstance(value, bool):
        return {} if value else None
    return value


def _listen(value: object) -> ListenAddress | None:
    return None if value is None or value is False else _address(value)


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class ReportConfig(_Model):
    """A report on stdout now and then, for people or, as one JSON object a line, for programs."""

    every: Duration = 60.0
    format: Literal["text", "json"] = "text"


class StatsdConfig(_Model):
    """A statsd server that takes tags as DogStatsD does."""

    address: AddressText
    prefix: str = Field(default="penstock", pattern=r"^[A-Za-z0-9_.]+$")
    every: Duration = 10.0


class MetricsConfig(_Model):
    """``listen`` and ``report`` None: turned off. Who says nothing of ``listen`` gets the default
    port on loopback, or if that is taken, one that is free.
    """

    listen: Annotated[ListenAddress | None, BeforeValidator(_listen)] = ListenAddress(
        "127.0.0.1", DEFAULT_PORT
    )
    report: Annotated[ReportConfig | None, BeforeValidator(_report)] = None
    statsd: StatsdConfig | None = None

    @property
    def is_default_address(self) -> bool:
        return "listen" not in self.model_fields_set
