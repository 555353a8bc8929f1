"""The `snowflake` destination's part of the pipeline file."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from penstock.destination.families.warehouse.options import WarehouseOptions

# Parts of names as they are written without quotes.
_NAME = r"^[A-Za-z_][A-Za-z0-9_$]*$"
_QUALIFIED = r"^[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*){0,2}$"

Name = Annotated[str, Field(pattern=_NAME)]
QualifiedName = Annotated[str, Field(pattern=_QUALIFIED)]


class SnowflakeOptions(WarehouseOptions):
    """``external_stage`` is the object of Snowflake that points to ``stage``. Who signs in does so
    with a key or a password.
    """

    account: Annotated[str, Field(min_length=1)]
    user: Annotated[str, Field(min_length=1)]
    private_key_file: str | None = None
    private_key_password: SecretStr | None = None
    password: SecretStr | None = None
    role: Name | None = None
    warehouse: Name
    database: Name
    external_stage: QualifiedName

    @model_validator(mode="after")
    def _one_way_to_sign_in(self) -> Self:
        if (self.private_key_file is None) == (self.password is None):
            raise PydanticCustomError(
                "snowflake", "say `private_key_file` or `password`, and not both"
            )
        return self
