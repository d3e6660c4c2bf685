"""``python slowly.py SECONDS ARGUMENTS``: plan-swarm, whose servers take so long for each block, as for real ones."""

import sys
import time

from planner.agent import loader

load = loader.load_pretrained_block
SECONDS = float(sys.argv.pop(1))


def load_slowly(*args, **options):
    time.sleep(SECONDS)
    return load(*args, **options)


loader.load_pretrained_block = load_slowly

from cli.app import main  # noqa: E402  # the loader first

main()
