from __future__ import annotations

import asyncio
import signal
import threading

import pytest

from planner.event_loop import SIGNALS, run


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_cancels_what_runs_and_is_raised_once_that_has_cleaned_up(number):
    steps = []

    def end(received, _frame):
        raise SystemExit(128 + received)

    async def main():
        try:
            signal.raise_signal(number)
            steps.append("went on to where it waits")
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            steps.append("cleaned up")

    previous = signal.signal(number, end)
    try:
        with pytest.raises(SystemExit) as ended:
            run(main())
        assert signal.getsignal(number) is end
    finally:
        signal.signal(number, previous)
    assert ended.value.code == 128 + number
    assert steps == ["went on to where it waits", "cleaned up"]


def test_a_signal_whose_handler_raises_nothing_changes_nothing():
    seen = []
    previous = signal.signal(signal.SIGTERM, lambda number, _frame: seen.append(number))

    async def main():
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0.01)
        return "whole"

    try:
        assert run(main()) == "whole"
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert seen == [signal.SIGTERM]


def test_whoever_insists_gets_out_of_what_does_not_end():
    async def main():
        while True:
            try:
                signal.raise_signal(signal.SIGINT)
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                continue

    with pytest.raises(KeyboardInterrupt):
        run(main())


def test_an_error_and_a_cancellation_of_its_own_come_out_as_they_are():
    async def fails():
        raise ValueError("of its own")

    async def gives_up():
        raise asyncio.CancelledError

    with pytest.raises(ValueError, match="of its own"):
        run(fails())
    with pytest.raises(asyncio.CancelledError):
        run(gives_up())


def test_it_runs_in_any_thread():
    found = []

    async def main():
        return "found"

    thread = threading.Thread(target=lambda: found.append(run(main())))
    thread.start()
    thread.join()
    assert found == ["found"]
