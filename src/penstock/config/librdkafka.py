"""Settings of librdkafka, as a pipeline file has them for source or destination."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator
from pydantic_core import PydanticCustomError


def _setting(value: object) -> object:
    # librdkafka takes text only, and people write `true` and `4` in YAML.
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


Setting = Annotated[str, BeforeValidator(_setting)]


def all_but(own: AbstractSet[str]) -> AfterValidator:
    """For a mapping of settings: refuses those that Penstock sets itself."""

    def expect(value: dict[str, str]) -> dict[str, str]:
        taken = sorted(own & value.keys())
        if taken:
            raise PydanticCustomError(
                "client",
                "{setting} is not to be set here: Penstock sets it itself",
                {"setting": taken[0]},
            )
        return value

    return AfterValidator(expect)
