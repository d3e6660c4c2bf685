"""Keys on the command line: which file, which passphrase, which public keys."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cli.live import say
from planner.errors import KeyUnusable
from planner.files import NotPlain, open_plain
from planner.text import escape, reason_of

if TYPE_CHECKING:
    from planner.keys import PublicKey, SigningKey

MAX_FILE = 4096


def signing_key(path: Path, passphrase_file: Path | None) -> SigningKey:
    """The key in a file; its passphrase comes from the other file, or from whoever sits at the terminal.

    Raises
    ------
    KeyUnusable
        If it cannot be used.
    """
    from planner.keys import load_key, needs_passphrase

    passphrase = read_passphrase(passphrase_file) if passphrase_file is not None else None
    if passphrase is None and needs_passphrase(path) and sys.stdin.isatty():
        passphrase = _ask(f"Passphrase of {escape(str(path))}: ")
    return load_key(path, passphrase)


def new_passphrase(passphrase_file: Path | None) -> str | None:
    """The passphrase for a new key; None for none, as where nobody can be asked.

    Raises
    ------
    KeyUnusable
        If it cannot be read, or was typed in two ways.
    """
    if passphrase_file is not None:
        return read_passphrase(passphrase_file)
    if not sys.stdin.isatty():
        return None
    passphrase = _ask("Passphrase for the new key (empty for none): ")
    if passphrase and _ask("The same again: ") != passphrase:
        raise KeyUnusable("the two passphrases differ; no key was made")
    return passphrase or None


def read_passphrase(path: Path) -> str:
    """The first line of a file.

    Raises
    ------
    KeyUnusable
        If it cannot be read or is empty.
    """
    name = escape(str(path))
    try:
        with open_plain(path) as file:
            status = os.fstat(file.fileno())
            content = file.read(MAX_FILE + 1)
        line = os.fsdecode(content.split(b"\n", 1)[0].removesuffix(b"\r"))
    except NotPlain:
        raise KeyUnusable(f"the passphrase in {name} cannot be read: it is not a plain file") from None
    except (OSError, ValueError) as error:
        raise KeyUnusable(f"the passphrase in {name} cannot be read: {reason_of(error)}") from None
    if not line or len(content) > MAX_FILE:
        raise KeyUnusable(f"{name} does not begin with a passphrase; write it on its first line")
    # Not refused, as a key is: secrets are often mounted with rights that their reader cannot change.
    if stat.S_ISREG(status.st_mode) and stat.S_IMODE(status.st_mode) & 0o077:
        say(f"warning: others than its owner may use {name}, which holds a passphrase: run chmod 600 on it")
    return line


def public_keys(texts: Sequence[str]) -> tuple[PublicKey, ...]:
    """The public keys that were named, each once.

    Raises
    ------
    KeyUnusable
        If one is no public key.
    """
    from planner.keys import PublicKey

    return tuple(dict.fromkeys(PublicKey.parse(text) for text in texts))


def _ask(prompt: str) -> str:
    from getpass import getpass

    return getpass(prompt, stream=sys.stderr)
