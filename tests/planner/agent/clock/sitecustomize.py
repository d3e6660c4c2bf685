"""For a process of the tests: its clock is ahead by as many seconds as the file named by TEST_CLOCK says now."""

import os
import time

right, file = time.time, os.environ["TEST_CLOCK"]


def ahead() -> float:
    with open(file) as stands:
        return right() + float(stands.read())


time.time = ahead
