"""How this command was called, so that a hint can be pasted into another terminal, whatever its PATH has."""

from __future__ import annotations

import os
import shlex
import shutil
import sys

NAME = "plan-swarm"


def invoked() -> str:
    """What to write in a shell to call it again: its name where that is enough, else with the way to it."""
    called = os.path.abspath(sys.argv[0])
    if os.path.basename(called) == NAME:
        found = shutil.which(NAME)
        return NAME if found is not None and os.path.samefile(found, called) else shlex.quote(called)
    return f"{shlex.quote(sys.executable)} -m cli"
