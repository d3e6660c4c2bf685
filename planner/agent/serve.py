"""`python -m petals.cli.run_server` with a server that changes its span: Petals' own options, read by Petals itself."""

from __future__ import annotations

import ctypes
import fcntl
import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from planner.agent.signatures import check
from planner.errors import KeyUnusable, OutputUnwritable, PlanSwarmError, PolicyInvalid, ServerFailed, SwarmUnreachable
from planner.files import read_bounded
from planner.text import escape, reason_of

PR_SET_PDEATHSIG = 1
"""Of Linux' ``prctl``: which signal a process gets when its parent ends."""
MAX_IDENTITY = 2**20
"""Bytes of an identity, at most: those of RSA keys have some thousand."""
IDENTITY, LOCK = "identity.key", "lock"
"""Files of the folder: the server's libp2p key, if it has none elsewhere, and what one server at a time holds."""


def serve(arguments: Sequence[str], state_dir: Path, make_server: Callable[[dict[str, Any]], Any]) -> None:
    """Run Petals' own command with another server in it, until that ends.

    Parameters
    ----------
    arguments
        Of the command line, as Petals takes them.
    state_dir
        The server's folder, which exists. Without ``--identity_path`` it holds the server's key too: a server that
        came back as another peer would be in no plan.
    make_server
        Makes the server of the options that Petals has made of `arguments`.

    Raises
    ------
    InputUnreadable, KeyUnusable
        If the file of the server's identity cannot be read, or holds something else.
    PackageUnusable
        If Petals is missing, or is none that the agent knows.
    PolicyInvalid
        If Petals does not take an option, or two of them together.
    ServerFailed
        If the server cannot be started, such as for want of the model.
    SwarmUnreachable
        If no initial peer can be reached.
    """
    check()
    from hivemind.utils.logging import use_hivemind_log_handler
    from petals.cli import run_server

    use_hivemind_log_handler("in_root_logger")
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # of what Petals needs: nobody who runs a server can do anything about them
    logging.getLogger("planner").setLevel(logging.INFO)
    started: list[Any] = []

    def start(**options: Any) -> Any:
        options["identity_path"] = options.get("identity_path") or str(_identity(state_dir))
        _check_identity(Path(options["identity_path"]))
        os.register_at_fork(after_in_child=_belong_to_parent)
        try:
            started.append(make_server(options))
        except (PlanSwarmError, SystemExit):
            raise
        except Exception as error:
            raise _not_started(error) from error
        return started[0]

    stock, argv = run_server.Server, sys.argv
    run_server.Server, sys.argv = start, ["plan-swarm serve", *arguments]
    # It asks PyPI whether there is a newer Petals, which is not what the agent has been checked with.
    run_server.validate_version = lambda: None
    try:
        with _one_line_errors(run_server):
            run_server.main()
    except (AssertionError, KeyError, ValueError) as error:
        if started:
            raise
        raise PolicyInvalid(f"petals takes no such options: {_first_line(error)}") from error
    finally:
        run_server.Server, sys.argv = stock, argv


@contextmanager
def owned(state_dir: Path) -> Iterator[None]:
    """Make the folder where there is none, and hold it: two servers in one would take each other's identity.

    Raises
    ------
    OutputUnwritable
        If it cannot be made or written to, or another server holds it.
    """
    name = escape(str(state_dir))
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(state_dir / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise OutputUnwritable(f"cannot keep a server's state in {name}: {reason_of(error)}; name another") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise OutputUnwritable(
                f"another server keeps its state in {name}; give each its own with --state-dir"
            ) from error
        yield
    finally:
        os.close(lock)


def _identity(state_dir: Path) -> Path:
    """The identity's file, made where there is none, for nobody else to read."""
    from hivemind.p2p import P2P

    path = state_dir / IDENTITY
    if not os.path.lexists(path):
        fresh = path.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        mask = os.umask(0o077)
        try:
            P2P.generate_identity(str(fresh))
        finally:
            os.umask(mask)
        fresh.replace(path)  # whole or not at all
    return path


def _check_identity(path: Path) -> None:
    """See whether the file, if it is there, is an identity: p2pd would say so as if the swarm could not be joined."""
    from hivemind.p2p import PeerID

    if not os.path.lexists(path):
        return  # hivemind makes it
    name = escape(str(path))
    data = read_bounded(path, name, MAX_IDENTITY, "the server's identity", "more than any identity")
    try:
        PeerID.from_identity(data)
    except Exception as error:
        raise KeyUnusable(
            f"{name} is not the identity of a server; put back what was there, or remove it (it is another peer then)"
        ) from error


def _belong_to_parent() -> None:
    """In a process that was forked: be ended by its parent, in order, and by the parent's death, but not before.

    A terminal's Ctrl-C goes to its whole foreground group, and without p2pd the swarm could not even be told.
    """
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@contextmanager
def _one_line_errors(run_server: Any) -> Iterator[None]:
    """Have the parser of Petals' command raise what it does not take, instead of printing 50 lines and exiting."""
    parser = run_server.configargparse.ArgParser
    stock = parser.error

    def error(_self: Any, message: str) -> NoReturn:
        raise PolicyInvalid(
            f"{escape(message, 500)}; see plan-swarm serve --help, and python -m petals.cli.run_server --help"
        )

    parser.error = error
    try:
        yield
    finally:
        parser.error = stock


def _not_started(error: Exception) -> PlanSwarmError:
    """Say in one line why there is no server."""
    text = _first_line(error)
    if isinstance(error, (AssertionError, ValueError)):
        return PolicyInvalid(f"petals does not start with these options: {text}")
    if "local time must be within" in text:
        return ServerFailed(f"this machine's clock and the swarm's differ by more than 3 s: set it, as by NTP ({text})")
    if "P2PDaemonError" in type(error).__name__ or "bootstrap peers" in text:
        return SwarmUnreachable(f"the swarm of --initial_peers cannot be joined: {text}; check that those nodes are up")
    return ServerFailed(f"petals cannot start the server: {text}")


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).strip().splitlines()] or [""]
    # Pydantic has in its first line how many errors there are, and then the first: where, and what.
    text = " ".join(lines[:3] if "validation error" in lines[0] else lines[:1])
    return escape(f"{type(error).__name__}: {text}" if text else type(error).__name__, 300)
