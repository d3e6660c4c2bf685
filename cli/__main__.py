"""`python -m cli` is `plan-swarm`; this is where both begin."""

from __future__ import annotations

import signal
from typing import NoReturn


def main() -> NoReturn:
    """Load the command line, and run it; until it is loaded, Ctrl-C ends the process without a word."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from cli.app import main

    main()


if __name__ == "__main__":
    main()
