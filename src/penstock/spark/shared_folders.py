"""Folders of destinations that the driver and all executors have to see: are they shared?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from penstock.config.models import PipelineConfig
from penstock.model.errors import PenstockError

# What destinations call the folders that tasks write to and the driver reads from, or the reverse.
_OPTIONS = ("path", "data_path", "stage", "warehouse")


@dataclass(frozen=True)
class SharedFolder:
    """``folder`` is what the option of that name says; it need not be there yet. ``place`` is the
    part of it that is there.
    """

    destination: str
    option: str
    folder: str
    place: str

    @contextmanager
    def shown(self, name: str) -> Iterator[Self]:
        """Leave a file of that name until the block ends, for executors to look for. Raises
        PenstockError where the folder cannot be written.
        """
        file = Path(self.place, f".penstock-{name}")
        try:
            file.touch()
        except OSError as error:
            raise PenstockError(
                f"{self.destination}: nothing can be written to {self.place}: {error.strerror}",
                remedy=f"See that {self.option} names a folder that the driver can write to.",
            ) from None
        try:
            yield self
        finally:
            with suppress(OSError):
                file.unlink()

    def require(self, name: str) -> None:
        """Called on an executor. Raises PenstockError where it sees another folder, or none."""
        if not Path(self.place, f".penstock-{name}").exists():
            raise PenstockError(
                f"does not see the driver's folder {self.folder} ({self.option} of the destination "
                f"{self.destination})",
                remedy=f"Let {self.option} be a folder that all machines share, such as one of "
                "NFS (docs/clusters.md says which destinations need one).",
            )


def shared_folders(views: Sequence[PipelineConfig]) -> list[SharedFolder]:
    """Those that the options of destinations name; what is in a bucket is none."""
    found = []
    for view in views:
        shown = view.destination_name or view.destination_type
        options = view.destination_options
        # What is too large for a queue goes to a folder as well.
        oversize = options.get("oversize")
        named = options | (oversize if isinstance(oversize, dict) else {})
        for option in (*_OPTIONS, "claim_check"):
            value = named.get(option)
            if isinstance(value, str) and "://" not in value.removeprefix("file://"):
                folder = Path(value.removeprefix("file://")).absolute()
                place = next(path for path in (folder, *folder.parents) if path.is_dir())
                found.append(SharedFolder(shown, option, str(folder), str(place)))
    return found
