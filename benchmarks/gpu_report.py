"""What is made of a change of span on a device: figures, what must be so of them, and their table."""

from __future__ import annotations

from typing import Any

from benchmarks import machine

NOT_ON_A_CPU = "not on a CPU"
NO_GRAPHS = "this Petals has none"
CLOSE = {"nf4": 0.02, "float16": 0.02, "float32": 1e-5}
"""How far an answer may be from the reference, as a share of its greatest value; a wrong block is about 1 away."""
LATE = 1.0
"""Seconds that a token may take longer than the slowest before the change."""
BACK = 0.95
"""Share of the dropped blocks' bytes that must have come back: the token that is being computed takes some, too."""
GIB = 2**30
SPENT = ("allocated", "reserved", "free")


def figures_of(told: dict[str, Any], name: str) -> dict[str, Any]:
    """The figures of one format, of what server and client have told."""
    before, after, changed = told["before"], told["after"], told["changed"]
    tokens, begun, ended = told["tokens"], told["begun"], told["ended"]
    earlier = [token for token in tokens if token["at"] < begun]
    since = [token for token in tokens if token["at"] >= begun]
    found = {
        "device": before["device"],
        "loaded": after["loads"][len(before["loads"]) :],
        "alive_at_first_load": after["events"][len(before["loads"])][1].partition("alive ")[2],
        "block_bytes": before["bytes"]["0"],
        "dropped_bytes": sum(before["bytes"][str(block)] for block in changed["dropped"]),
        "seconds": _seconds(changed["moments"]),
        "memory": _memory(told),
        "tokens": {
            "before": len(earlier),
            "during": sum(token["at"] < ended for token in since),
            "after": sum(token["at"] >= ended for token in since),
            "slowest_before": max(token["seconds"] for token in earlier),
            "slowest_since": max((token["seconds"] for token in since), default=0.0),
        },
        "sessions": told["sessions"],
        "replayed": told["replayed"][1],
    }
    return {**found, "checks": _checks(told, found, CLOSE[name])}


def _seconds(moments: list[dict[str, Any]]) -> dict[str, Any]:
    at = {moment["what"]: moment["at"] for moment in reversed(moments)}  # the first of each
    loads = [{name: one[name] for name in ("block", "read", "convert")} for one in moments if one["what"] == "loaded"]
    return {
        "drain": at["free"] - at["drain"],
        "free": at["load"] - at["free"],
        "load": loads,
        "whole": at["done"] - at["drain"],
    }


def _memory(told: dict[str, Any]) -> dict[str, Any] | str:
    if told["before"]["memory"] is None:
        return NOT_ON_A_CPU
    moments = told["changed"]["moments"]
    first = {moment["what"]: moment["memory"] for moment in reversed(moments)}
    peaks = [moment["memory"]["peak"] for moment in moments if moment["what"] == "loaded"]
    return {
        "before": told["before"]["memory"],
        "dropped": first["load"],
        "after": first["done"],
        "peak_while_loading": max(peaks, default=0),
    }


def _checks(told: dict[str, Any], found: dict[str, Any], close: float) -> dict[str, bool | str]:
    before, after, changed, tokens = told["before"], told["after"], told["changed"], found["tokens"]
    right = {
        name: session["ended"] == "whole" and session["wrong"] <= close for name, session in found["sessions"].items()
    }
    return {
        "the span is the new one, and nothing has failed": after["span"] == [2, 6] and changed["failure"] is None,
        "exactly the new blocks are loaded": found["loaded"] == [4, 5],
        "kept parameters stay at their addresses": all(
            after["addresses"][block] == before["addresses"][block] for block in ("2", "3")
        ),
        "dropped blocks are gone before the first load": found["alive_at_first_load"] == "[2, 3]"
        and changed["leaked"] == [],
        "device memory of dropped blocks is back before the first load": _is_back(
            found["memory"], found["dropped_bytes"]
        ),
        "device memory is that of before in the end": _is_as_before(found["memory"], found["dropped_bytes"]),
        "tokens come before, during and after": min(tokens["before"], tokens["during"], tokens["after"]) > 0,
        "every token is right": right["0:4 before"] and right["2:4 throughout"],
        "no token is late": tokens["slowest_since"] <= tokens["slowest_before"] + LATE,
        "new blocks answer right": right["4:6 after"] and right["2:6 after"],
        "kept blocks answer a token as before": all(one["moved"] <= close for one in found["replayed"].values()),
        "CUDA graphs are those of before, and replay right": _graphs(told, close),
    }


def _is_back(memory: Any, dropped_bytes: int) -> bool | str:
    """By what torch has allocated.

    What it has reserved may be more: where blocks are quantized, those of them that stay can lie in the same segments.
    """
    if memory == NOT_ON_A_CPU:
        return NOT_ON_A_CPU
    return bool(memory["before"]["allocated"] - memory["dropped"]["allocated"] >= BACK * dropped_bytes)


def _is_as_before(memory: Any, dropped_bytes: int) -> bool | str:
    if memory == NOT_ON_A_CPU:
        return NOT_ON_A_CPU
    return bool(abs(memory["after"]["allocated"] - memory["before"]["allocated"]) <= (1 - BACK) * dropped_bytes)


def _graphs(told: dict[str, Any], close: float) -> bool | str:
    if told["before"]["memory"] is None:
        return NOT_ON_A_CPU
    replays = [one for replayed in told["replayed"] for one in replayed.values()]
    if not any(one["of"] for one in replays):
        return NO_GRAPHS
    return all(one["captured"] == one["of"] and one["same"] and one["wrong"] <= close for one in replays)


def is_well(figures: dict[str, Any]) -> bool:
    """Whether everything is so that could be looked at."""
    tried = [one for one in figures["formats"].values() if one != NOT_ON_A_CPU]
    return all("failed" not in one and False not in one["checks"].values() for one in tried)


def table(figures: dict[str, Any]) -> str:
    """Markdown; below it, what is not in it and why."""
    tried = {name: one for name, one in figures["formats"].items() if one != NOT_ON_A_CPU}
    whole = {name: one for name, one in tried.items() if "failed" not in one}
    size = figures["model"]
    lines = [
        "## A change of span on a device",
        "",
        f"{size['blocks']} blocks, hidden size {size['hidden']}, intermediate {size['intermediate']}: from 0:4 to 2:6.",
        "",
    ]
    if whole:
        columns = [_column(one) for one in whole.values()]
        rows = dict.fromkeys(row for column in columns for row in column)
        heads = (f"{name} on {one['device']}" for name, one in whole.items())
        lines += [f"| | {' | '.join(heads)} |", f"|---|{'---|' * len(columns)}"]
        lines += [f"| {row} | {' | '.join(column.get(row, '–') for column in columns)} |" for row in rows]
        lines.append("")
    lines += [f"{name}: {NOT_ON_A_CPU}" for name in figures["formats"] if name not in tried]
    lines += [f"{name} failed: {one['failed']}" for name, one in tried.items() if name not in whole]
    return "\n".join([*lines, "", f"{figures['seconds']:.0f} s in all. {machine.table(figures['machine'])}"])


def _column(one: dict[str, Any]) -> dict[str, str]:
    memory, seconds, tokens = one["memory"], one["seconds"], one["tokens"]

    def spent(when: str) -> str:
        return memory if isinstance(memory, str) else " / ".join(f"{memory[when][name] / GIB:.2f}" for name in SPENT)

    return {
        "weights of a block, MiB": f"{one['block_bytes'] / 2**20:.2f}",
        "device memory allocated / reserved / free, GiB: before": spent("before"),
        "the same, blocks dropped and nothing loaded yet": spent("dropped"),
        "the same, after": spent("after"),
        "highest allocated while loading, GiB": memory
        if isinstance(memory, str)
        else f"{memory['peak_while_loading'] / GIB:.2f}",
        "telling the swarm and draining, s": f"{seconds['drain']:.2f}",
        "freeing, s": f"{seconds['free']:.2f}",
        **{
            f"loading block {load['block']}: reading / converting, s": f"{load['read']:.2f} / {load['convert']:.2f}"
            for load in seconds["load"]
        },
        "the whole change, s": f"{seconds['whole']:.2f}",
        "tokens before / during / after": f"{tokens['before']} / {tokens['during']} / {tokens['after']}",
        "slowest token before / since, s": f"{tokens['slowest_before']:.2f} / {tokens['slowest_since']:.2f}",
        **{
            f"furthest from the reference, {name}": f"{session['wrong']:.1e}" if "wrong" in session else "–"
            for name, session in one["sessions"].items()
        },
        **{
            f"**{what}**": answer if isinstance(answer, str) else "yes" if answer else "NO"
            for what, answer in one["checks"].items()
        },
    }
