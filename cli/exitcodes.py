"""What the process's exit code says, and which error gives which."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.errors import PlanSwarmError


class ExitCode(IntEnum):
    """The exit codes of `plan-swarm`.

    2 is what argument parsers give for a mistyped option, so "there is something to do" is 10: a script can
    tell a typo from a plan.
    """

    SUCCESS = 0
    UNEXPECTED = 1
    USAGE = 2
    INFEASIBLE = 3
    INPUT_UNREADABLE = 4
    INPUT_INVALID = 5
    NOTHING_TO_PLAN = 6
    OUTPUT_UNWRITABLE = 7
    UNREACHABLE = 8
    PARTIAL = 9
    SOMETHING_TO_DO = 10
    KEY_UNUSABLE = 11
    DRIFTED = 12
    REFUSED = 13
    PACKAGE_UNUSABLE = 14
    SERVER_FAILED = 15
    INTERRUPTED = 130
    CLOSED_PIPE = 141
    TERMINATED = 143


MEANINGS = {
    ExitCode.SUCCESS: "there is a plan, or there is nothing to do",
    ExitCode.UNEXPECTED: "an unexpected error: a bug in plan-swarm",
    ExitCode.USAGE: "an option is unknown or out of its range, or names no server or several",
    ExitCode.INFEASIBLE: "what is asked contradicts itself or the swarm",
    ExitCode.INPUT_UNREADABLE: "the input cannot be read",
    ExitCode.INPUT_INVALID: "the input is not the state of a swarm, or an edited plan",
    ExitCode.NOTHING_TO_PLAN: "the input holds no such prefix, or no server",
    ExitCode.OUTPUT_UNWRITABLE: "the output cannot be written",
    ExitCode.UNREACHABLE: "the swarm cannot be reached, or does not answer in time",
    ExitCode.PARTIAL: "the swarm was read in part only: nothing may be published",
    ExitCode.SOMETHING_TO_DO: "with --detailed-exitcode: the plan changes something",
    ExitCode.KEY_UNUSABLE: "a key or its file cannot be made, read or trusted",
    ExitCode.DRIFTED: "the swarm is no longer as the plan found it",
    ExitCode.REFUSED: "a signed plan is refused, or cannot be signed",
    ExitCode.PACKAGE_UNUSABLE: "a package that this needs is missing, or does not fit",
    ExitCode.SERVER_FAILED: "a server started here did not come up, or broke down",
    ExitCode.INTERRUPTED: "given up, with Ctrl-C or by answering no",
    ExitCode.CLOSED_PIPE: "the reader of standard output has gone",
    ExitCode.TERMINATED: "ended by SIGTERM, with nothing left behind",
}


def code_for(error: PlanSwarmError) -> ExitCode:
    """The exit code of an error that a user can act on."""
    from planner import errors

    codes: dict[type[PlanSwarmError], ExitCode] = {
        errors.PolicyInvalid: ExitCode.USAGE,
        errors.InfeasibleDemands: ExitCode.INFEASIBLE,
        errors.InputUnreadable: ExitCode.INPUT_UNREADABLE,
        errors.InputInvalid: ExitCode.INPUT_INVALID,
        errors.NothingToPlan: ExitCode.NOTHING_TO_PLAN,
        errors.OutputUnwritable: ExitCode.OUTPUT_UNWRITABLE,
        errors.SwarmUnreachable: ExitCode.UNREACHABLE,
        errors.PartialReading: ExitCode.PARTIAL,
        errors.KeyUnusable: ExitCode.KEY_UNUSABLE,
        errors.Drifted: ExitCode.DRIFTED,
        errors.EnvelopeRefused: ExitCode.REFUSED,
        errors.PackageUnusable: ExitCode.PACKAGE_UNUSABLE,
        errors.ServerFailed: ExitCode.SERVER_FAILED,
    }
    return next((code for kind, code in codes.items() if isinstance(error, kind)), ExitCode.UNEXPECTED)


def epilog() -> str:
    """The codes as the last paragraph of ``--help``; the backspace keeps its lines apart."""
    return "\b" + "\n".join(["Exit codes:", *(f"{code.value:>5}  {meaning}" for code, meaning in MEANINGS.items())])
