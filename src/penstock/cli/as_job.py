"""`penstock` as a long operation of `penstock serve`: it writes down how it ended.

It begins when the server says so, which is once the server has written down which process it is. A
server that dies before that leaves nothing that works on unseen.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from penstock.operations.exit_codes import EXIT_FAILED
from penstock.serve.state_folder import write_json
from penstock.serve.supervise.jobs import ENDED, GO


def main(folder: Path, arguments: list[str]) -> None:
    """Run one command line, and exit with what it ended with."""
    if sys.stdin.buffer.readline() != GO:
        return
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, sys.stdin.fileno())
    os.close(nothing)
    from penstock.cli.main import main as penstock

    code: object = EXIT_FAILED
    try:
        penstock(arguments)
    except SystemExit as ending:
        code = ending.code or 0
        raise
    finally:
        write_json(folder / ENDED, {"exit_code": code if isinstance(code, int) else EXIT_FAILED})


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
