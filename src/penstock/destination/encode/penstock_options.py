"""What can be chosen about Penstock's own JSON: docs/change_json.md."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class PenstockOptions(BaseModel):
    """With ``column_ids`` events tell what their table and columns are called by the catalogue."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    column_ids: bool = False
