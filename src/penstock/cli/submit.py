"""What spark-submit runs: `spark-submit … submit.py run shop.yaml`. docs/clusters.md says how."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    # A script's own folder comes first on its path, and ours holds modules that are no packages.
    sys.path[:] = [path for path in sys.path if Path(path).resolve() != Path(__file__).parent]
    from penstock.cli.main import main

    main()
