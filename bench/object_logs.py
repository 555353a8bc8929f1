"""An object store for the change logs of the systems that keep them there."""

from __future__ import annotations

from typing import Any

from bench.settings import ON_CLUSTERS
from tests.objects_server import ObjectServer

IN_OBJECTS = ("discard_object_log", *ON_CLUSTERS)


class ObjectLogs(ObjectServer):
    """Inside ``with`` the store runs."""

    def change_log(self) -> dict[str, Any]:
        """The pipeline file's part, for a log of its own; past the tests' proxy."""
        return {"path": self.place(), "options": self.direct_options}


def change_log_of(system: str, objects: ObjectLogs | None) -> dict[str, Any]:
    """What a system's pipeline file says of its log; nothing for a folder."""
    return objects.change_log() if objects is not None and system in IN_OBJECTS else {}
