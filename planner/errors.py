"""Errors that a user can act on: each is one line that says what, where and how to mend it."""

from __future__ import annotations


class PlanSwarmError(Exception):
    """Base of all errors that are the input's or the environment's fault, not a bug."""


class InputUnreadable(PlanSwarmError):
    """The input cannot be read: missing, a directory, too large, not JSON."""


class InputInvalid(PlanSwarmError):
    """The input was read but is not a swarm's state: another kind, an unknown version, a bad number of blocks."""


class NothingToPlan(PlanSwarmError):
    """The state is in order, but holds no such prefix or no server."""


class PolicyInvalid(PlanSwarmError):
    """An option is out of its range, or names a server that is unknown or ambiguous."""


class InfeasibleDemands(PlanSwarmError):
    """What is asked contradicts itself or the swarm: no placement can satisfy it."""


class OutputUnwritable(PlanSwarmError):
    """The output cannot be written; what stood there before is untouched."""


class SwarmUnreachable(PlanSwarmError):
    """No node of the swarm's DHT could be reached, or none answered in time."""


class PackageUnusable(PlanSwarmError):
    """A package that not every command needs is missing, or of a version that does not fit."""


class ServerFailed(PlanSwarmError):
    """A server that was started here did not come up, or ended by itself."""


class PartialReading(PlanSwarmError):
    """The swarm was read, but keys are likely to be missing: nothing may be acted on."""


class KeyUnusable(PlanSwarmError):
    """A key or its file cannot be made, read or trusted: it exists already, others may read it, wrong passphrase."""


class EnvelopeRefused(PlanSwarmError):
    """A signed envelope is not what it should be, or what is to be signed does not fit into one."""


class Drifted(PlanSwarmError):
    """The swarm is no longer as the plan found it."""
