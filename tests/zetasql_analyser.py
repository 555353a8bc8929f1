"""BigQuery's own analyser of SQL (ZetaSQL, as WebAssembly): names and types of a statement.

Its module is compiled once and kept below .cache: that takes half a minute of a core.
"""

from __future__ import annotations

import fcntl
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

Columns = Mapping[str, str]
"""Names and types of BigQuery's, without digits."""

_CACHE = Path(__file__).parent.parent / ".cache" / "zetasql"
_KINDS = {"INT64": "INT64", "FLOAT64": "DOUBLE", "BOOL": "BOOL"}


class Refused(Exception):
    """The analyser does not take a statement."""


def analyse(statement: str, tables: Mapping[tuple[str, str], Columns]) -> None:
    """Raise Refused unless a statement is one of BigQuery's SQL over these tables, by dataset and
    name; those without a dataset have an empty one.
    """
    api, types, options = _library()
    datasets: dict[str, list[Any]] = {}
    for (dataset, name), columns in tables.items():
        builder = api.TableBuilder(name)
        for column, kind in columns.items():
            builder.add_column(column, getattr(types.TypeKind, f"TYPE_{_KINDS.get(kind, kind)}"))
        datasets.setdefault(dataset, []).append(builder.build())
    builtin = types.ZetaSQLBuiltinFunctionOptions(language_options=options.language_options)
    catalogue = types.SimpleCatalog(
        name="project",
        table=datasets.pop("", []),
        catalog=[types.SimpleCatalog(name=name, table=found) for name, found in datasets.items()],
        builtin_function_options=builtin,
    )
    try:
        api.Analyzer(options, catalogue).analyze_statement(statement)
    except Exception as error:
        raise Refused(f"{error} in {statement}") from None


@cache
def _library() -> tuple[Any, Any, Any]:
    import zetasql.core.wasm_client as client

    client.Config, client.Module = _quick_config, _KeptModule
    from zetasql import api, types

    language = types.LanguageOptions.maximum_features()
    return api, types, types.AnalyzerOptions(language_options=language)


def _quick_config() -> Any:
    from wasmtime import Config

    config = Config()
    config.cranelift_opt_level = "none"
    return config


class _KeptModule:
    """In place of wasmtime's, which compiles each time."""

    @staticmethod
    def from_file(engine: Any, path: str) -> Any:
        from wasmtime import Module

        kept = _CACHE / f"{version('zetasql')}-{version('wasmtime')}.cwasm"
        _CACHE.mkdir(parents=True, exist_ok=True)
        with (_CACHE / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # several processes of pytest need it at once
            if not kept.exists():
                part = kept.with_suffix(".part")
                part.write_bytes(Module.from_file(engine, path).serialize())
                part.replace(kept)
        return Module.deserialize_file(engine, str(kept))
