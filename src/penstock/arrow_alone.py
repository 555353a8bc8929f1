"""pyarrow without pandas, for processes that have no use for it."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec


class _NoPandas(MetaPathFinder):
    """A None in sys.modules is not enough: compiled modules take it for the module."""

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pyarrow does without pandas", name=fullname)
        return None


def keep_pandas_out() -> None:
    """Have pyarrow make its first array while pandas cannot be found.

    The first array from Python objects or NumPy imports pandas where it is installed: a third of a
    second and 35 MB in every process. pyarrow looks once. Later it looks again only when somebody
    asks for pandas (`to_pandas`), so that a user's own transformer may.
    """
    if "pandas" in sys.modules:
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow as pa

        pa.array([0])
    finally:
        sys.meta_path.remove(finder)
