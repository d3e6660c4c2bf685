"""`plan-swarm revoke`: take back what was published."""

from __future__ import annotations

from cli.exitcodes import ExitCode
from cli.options import DEFAULT_TIMEOUT, Action, InitialPeers, KeyFile, PassphraseFile, Prefix, Quiet, Timeout


def revoke(
    prefix: Prefix,
    key: KeyFile,
    passphrase_file: PassphraseFile = None,
    initial_peers: InitialPeers = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    quiet: Quiet = False,
) -> Action:
    """Take back the plan that a key has published: no further move begins, what has moved stays."""

    def act() -> ExitCode:
        from cli.commands.publish import hold, say_published
        from cli.live import check_installed, progress, swarm

        check_installed()
        from cli.keyfiles import signing_key

        signer = signing_key(key, passphrase_file)
        with swarm(initial_peers or (), timeout) as way:
            from planner.publishing import revoke as take_back

            with progress(quiet, timeout):
                done = take_back(
                    prefix, signer, way.peers, timeout=timeout, storing=lambda verified, _: hold(way, verified)
                )
            say_published(done)
            way.ending.let_go()
        return ExitCode.SUCCESS

    return act
