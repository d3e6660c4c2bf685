"""An operator's Ed25519 key: made once, kept in a file that only its owner may read, named by its public half."""

from __future__ import annotations

import base64
import binascii
import errno
import hashlib
import os
import stat
from contextlib import suppress
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from planner.errors import KeyUnusable
from planner.text import escape, reason_of, show

SCHEME = "ed25519:"
MAX_KEY_FILE = 16_384
"""Bytes; a key has about 300."""
MAX_PASSPHRASE = 1023
"""Bytes: what OpenSSL takes."""

_FIELD = 2**255 - 19
_SIGN = 1 << 255
_SMALL_ORDER = frozenset(
    {
        0,
        1,
        _FIELD - 1,
        int.from_bytes(bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little"),
        int.from_bytes(bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"), "little"),
    }
)
"""The y coordinates of the eight points whose order divides 8: everybody can sign for such a key."""


@dataclass(frozen=True)
class PublicKey:
    """The public half of an operator's key: what an agent is told to trust.

    Parameters
    ----------
    raw
        The 32 bytes of RFC 8032.

    Raises
    ------
    KeyUnusable
        If they are not 32 bytes, not the one way to write a point, or a point of small order. OpenSSL takes
        all of those as keys, and for one of small order it takes signatures that need no secret.
    """

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != 32:
            raise KeyUnusable("the public key is not 32 bytes long")
        y = int.from_bytes(self.raw, "little") & ~_SIGN
        if y >= _FIELD:
            raise KeyUnusable("the public key is not in its one canonical form; ask for it again")
        if y in _SMALL_ORDER:
            raise KeyUnusable("the public key is a point of small order, for which anyone can sign; never trust it")

    @classmethod
    def parse(cls, text: str) -> PublicKey:
        """Read what `text` writes: ``ed25519:`` and 43 characters of URL-safe base64.

        Raises
        ------
        KeyUnusable
            If it is anything else.
        """
        body = text.strip().removeprefix(SCHEME)
        try:
            raw = base64.b64decode(body + "=", altchars=b"-_", validate=True)
            key = cls(raw)
        except (binascii.Error, ValueError):
            raise KeyUnusable(f"{show(text)} is not a public key; {_EXPECTED}") from None
        except KeyUnusable as error:
            raise KeyUnusable(f"{show(text)}: {error}") from None
        if key.text() != text.strip():
            raise KeyUnusable(f"{show(text)} is not a public key; {_EXPECTED}")
        return key

    def text(self) -> str:
        """The key on one line, as ``--trust`` takes it."""
        return SCHEME + base64.urlsafe_b64encode(self.raw).decode().rstrip("=")

    @property
    def key_id(self) -> str:
        """The first 32 hexadecimal digits of its SHA-256: what names it in the DHT."""
        return hashlib.sha256(self.raw).hexdigest()[:32]

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether `signature` was made over `message` by the private half."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True

    def __str__(self) -> str:
        return self.text()


_EXPECTED = f"expected {SCHEME} and 43 letters, digits, - or _, as plan-swarm keygen prints it"


@dataclass(frozen=True)
class SigningKey:
    """An operator's key; its secret shows in no message and no representation."""

    _private: Ed25519PrivateKey = field(repr=False)

    @property
    def public(self) -> PublicKey:
        """Its public half."""
        return PublicKey(self._private.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """The signature over `message`, 64 bytes."""
        return self._private.sign(message)

    def pem(self, passphrase: str | None = None) -> bytes:
        """The key as PKCS 8 in PEM, encrypted where there is a passphrase.

        Raises
        ------
        KeyUnusable
            If the passphrase is empty or too long.
        """
        encryption = NoEncryption() if passphrase is None else BestAvailableEncryption(_passphrase(passphrase))
        return self._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


def generate() -> SigningKey:
    """Make a new key from the system's randomness."""
    return SigningKey(Ed25519PrivateKey.generate())


def save_key(path: str | os.PathLike[str], key: SigningKey, passphrase: str | None = None) -> None:
    """Write `key` into a new file that only its owner may read, from the moment it exists.

    Raises
    ------
    KeyUnusable
        If there is something at `path` already, a symbolic link included, or it cannot be written; a file that
        was begun is removed.
    """
    name = escape(os.fspath(path))
    pem = key.pem(passphrase)
    try:
        # O_EXCL also refuses a symbolic link, wherever it points.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        if os.path.isdir(path):
            raise KeyUnusable(f"{name} is a directory; name a file that is not there yet for the key") from None
        raise KeyUnusable(f"{name} exists already, and a key is never overwritten; name another file") from None
    except (OSError, ValueError) as error:
        raise KeyUnusable(f"the key cannot be written to {name}: {reason_of(error)}") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), 0o600)  # the umask may have taken the owner's own rights away
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise KeyUnusable(f"the file system of {name} cannot keep a file from others; use another")
            file.write(pem)
            file.flush()
            os.fsync(file.fileno())
        _sync_folder(path)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(path)
        if isinstance(error, OSError):
            raise KeyUnusable(f"the key cannot be written to {name}: {reason_of(error)}") from None
        raise


def load_key(path: str | os.PathLike[str], passphrase: str | None = None) -> SigningKey:
    """Read a key that `save_key` wrote.

    Raises
    ------
    KeyUnusable
        If the file is missing, a symbolic link, readable by others, no Ed25519 key in PEM, or if the passphrase
        is missing, wrong, or for nothing.
    """
    name = escape(os.fspath(path))
    pem = _read_private(path, name)
    encrypted = _is_encrypted(pem)
    if encrypted and passphrase is None:
        raise KeyUnusable(f"the key in {name} is protected by a passphrase; give it with --passphrase-file FILE")
    if not encrypted and passphrase is not None:
        raise KeyUnusable(f"the key in {name} has no passphrase, yet one is given; leave out --passphrase-file")
    secret = None if passphrase is None else _passphrase(passphrase)
    try:
        key = load_pem_private_key(pem, secret)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        why = "the passphrase is wrong, or the file is damaged" if encrypted else "it is no private key in PEM"
        raise KeyUnusable(f"the key in {name} cannot be read: {why}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyUnusable(f"the key in {name} is not an Ed25519 key; make one with plan-swarm keygen")
    return SigningKey(key)


def needs_passphrase(path: str | os.PathLike[str]) -> bool:
    """Whether the key in the file is encrypted, so that a person is asked only then.

    Raises
    ------
    KeyUnusable
        As `load_key` for the file.
    """
    return _is_encrypted(_read_private(path, escape(os.fspath(path))))


def _is_encrypted(pem: bytes) -> bool:
    return b"-----BEGIN ENCRYPTED PRIVATE KEY-----" in pem


def _read_private(path: str | os.PathLike[str], name: str) -> bytes:
    try:
        # O_NONBLOCK: a pipe must not make us wait before its kind is known.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            # Of the file that is open, not of the path: the two may differ by now.
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise KeyUnusable(f"{name} is not a plain file; name the file of the key itself")
            if stat.S_IMODE(status.st_mode) & 0o077:
                raise KeyUnusable(f"others than its owner may use {name}: run chmod 600 on it, or make a new key")
            data = os.read(descriptor, MAX_KEY_FILE + 1)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise KeyUnusable(f"{name} does not exist; make a key with plan-swarm keygen") from None
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.ELOOP:
            raise KeyUnusable(f"{name} is a symbolic link; name the file of the key itself") from None
        raise KeyUnusable(f"{name} cannot be read: {reason_of(error)}") from None
    if len(data) > MAX_KEY_FILE:
        raise KeyUnusable(f"{name} is too large for a key")
    return data


def _passphrase(text: str) -> bytes:
    secret = text.encode("utf-8", "surrogateescape")
    if not 1 <= len(secret) <= MAX_PASSPHRASE:
        raise KeyUnusable(f"a passphrase has 1 to {MAX_PASSPHRASE} bytes; leave it out for a key without one")
    return secret


def _sync_folder(path: str | os.PathLike[str]) -> None:
    folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
