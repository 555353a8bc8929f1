"""What can be chosen about pg-bifrost's format: docs/bifrost_format.md."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class BifrostOptions(BaseModel):
    """``old_values: false`` is pg-bifrost's no-marshal-old-value."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    old_values: bool = True
