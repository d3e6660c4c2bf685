from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import KeyUnusable
from planner.keys import SCHEME, PublicKey, SigningKey, generate, load_key, needs_passphrase, save_key

ROOT = Path(__file__).parents[2]
KEY = generate()
P = 2**255 - 19
IDENTITY = (1).to_bytes(32, "little")


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


# Public keys ---------------------------------------------------------------------------------------------


def test_a_public_key_is_one_line_that_reads_back():
    text = KEY.public.text()
    assert text.startswith("ed25519:")
    assert len(text) == len(SCHEME) + 43
    assert PublicKey.parse(text) == PublicKey.parse(f" {text}\n") == KEY.public
    assert str(KEY.public) == text


def test_the_vector_of_rfc_8032():
    """The second test vector of its section 7.1, and the key id by hand: sha256sum of the 32 bytes."""
    key = PublicKey(bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"))
    signature = bytes.fromhex(
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    assert key.verifies(signature, b"\x72")
    assert not key.verifies(signature, b"\x73")
    digest = subprocess.run(["sha256sum"], input=key.raw, capture_output=True, check=True).stdout
    assert key.key_id == digest[:32].decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ed25519:",
        "rsa:" + KEY.public.text()[8:],
        KEY.public.text()[8:],
        KEY.public.text().upper(),
        KEY.public.text()[:-1],
        KEY.public.text() + "A",
        KEY.public.text() + "=",
        KEY.public.text()[:20] + "!" + KEY.public.text()[21:],
        KEY.public.text()[:20] + "\n" + KEY.public.text()[21:],
        "ed25519:" + "é" * 43,
        "ed25519:\x1b[2J",
        "ed25519:" + "A" * 1_000_000,
        "ed25519:" + "_" * 42 + "+",
    ],
    ids=range(14),
)
def test_what_is_no_public_key(text):
    with pytest.raises(KeyUnusable) as caught:
        PublicKey.parse(text)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 250


def test_one_key_has_one_spelling():
    """The last of the 43 characters has two bits to spare: setting them must not give a second name of the key."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    text = KEY.public.text()
    spellings = [text[:-1] + last for last in alphabet if alphabet.index(last) // 4 == alphabet.index(text[-1]) // 4]
    assert len(spellings) == 4
    for other in spellings:
        if other != text:
            with pytest.raises(KeyUnusable, match="is not a public key"):
                PublicKey.parse(other)


def add(one, other):
    """The sum of two points of Ed25519: RFC 8032, in affine coordinates."""
    d = -121665 * pow(121666, -1, P) % P
    (x1, y1), (x2, y2) = one, other
    t = d * x1 * x2 * y1 * y2 % P
    x = (x1 * y2 + x2 * y1) * pow(1 + t, -1, P) % P
    y = (y1 * y2 + x1 * x2) * pow(1 - t, -1, P) % P
    return x, y


def small_order_points():
    """The eight points that adding to themselves three times turns into the neutral one, found and not listed."""
    d = -121665 * pow(121666, -1, P) % P
    root = pow(2, (P - 1) // 4, P)
    points = set()
    # An x and y whose double has y = 0 (order 4) solve x^2 = -y^2; with the curve's equation, d y^4 + 2 y^2 - 1 = 0.
    ys = {0, 1, P - 1}
    for sign in (1, -1):
        inside = (1 + d) % P
        s = pow(inside, (P + 3) // 8, P)
        if s * s % P != inside:
            s = s * root % P
        square = (-1 + sign * s) * pow(d, -1, P) % P
        y = pow(square, (P + 3) // 8, P)
        for candidate in (y, y * root % P):
            if candidate * candidate % P == square:
                ys |= {candidate, P - candidate}
    for y in ys:
        square = (y * y - 1) * pow(d * y * y + 1, -1, P) % P
        x = pow(square, (P + 3) // 8, P)
        x = x if x * x % P == square else x * root % P
        assert x * x % P == square
        points |= {(x, y), (-x % P, y)}
    return points


def test_keys_of_small_order_are_refused_all_eight_of_them():
    points = small_order_points()
    assert len(points) == 8
    for point in points:
        eight = add(point, point)
        eight = add(eight, eight)
        assert add(eight, eight) == (0, 1)
        for sign in (0, 1):
            raw = (point[1] | sign << 255).to_bytes(32, "little")
            with pytest.raises(KeyUnusable, match="small order"):
                PublicKey(raw)


def test_why_they_are_refused_cryptography_takes_a_forgery_for_any_message():
    forged = IDENTITY + bytes(32)
    Ed25519PublicKey.from_public_bytes(IDENTITY).verify(forged, b"whatever an attacker likes")  # does not raise
    with pytest.raises(KeyUnusable, match="anyone can sign"):
        PublicKey.parse("ed25519:AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")


@pytest.mark.parametrize("y", range(P, 2**255))
def test_keys_that_are_not_canonical_are_refused(y):
    """cryptography takes them: y and y - p would be two names of one key."""
    for raw in (y.to_bytes(32, "little"), (y | 1 << 255).to_bytes(32, "little")):
        Ed25519PublicKey.from_public_bytes(raw)
        with pytest.raises(KeyUnusable, match="canonical"):
            PublicKey(raw)


@pytest.mark.parametrize("length", [0, 31, 33, 64])
def test_keys_of_another_length(length):
    with pytest.raises(KeyUnusable, match="32 bytes"):
        PublicKey(b"\x05" * length)


def test_a_key_that_is_no_point_verifies_nothing():
    """Half of all canonical strings are none; cryptography takes them, and says no at the first signature."""
    key = PublicKey((2).to_bytes(32, "little"))
    assert not key.verifies(KEY.sign(b"m"), b"m")


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_any_signature_of_any_length_is_an_answer(signature, message):
    assert not KEY.public.verifies(signature, message)


@given(st.integers(0, 64 * 8 - 1), st.binary(max_size=50))
def test_a_flipped_bit_of_a_signature(bit, message):
    signature = bytearray(KEY.sign(message))
    assert KEY.public.verifies(bytes(signature), message)
    signature[bit // 8] ^= 1 << bit % 8
    assert not KEY.public.verifies(bytes(signature), message)


def test_a_signature_has_no_second_form():
    """s + L would sign the same, were it taken."""
    signature = KEY.sign(b"m")
    s = int.from_bytes(signature[32:], "little") + 2**252 + 27742317777372353535851937790883648493
    assert not KEY.public.verifies(signature[:32] + s.to_bytes(32, "little"), b"m")


def test_a_secret_shows_nowhere(tmp_path):
    key = generate()
    secret = key._private.private_bytes_raw()
    shown = f"{key} {key!r} {vars(key.public)}"
    assert secret.hex() not in shown
    assert "Private" not in repr(key)
    assert key != generate()


# Files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("passphrase", [None, "x", "correct horse", "Übergrößenträger 🐎", "\udcff", " "])
def test_a_key_reads_back(passphrase, tmp_path):
    path = tmp_path / "key.pem"
    save_key(path, KEY, passphrase)
    assert load_key(path, passphrase).public == KEY.public
    assert load_key(str(path), passphrase).sign(b"m") == KEY.sign(b"m")
    assert needs_passphrase(path) == (passphrase is not None)
    begin = "ENCRYPTED PRIVATE" if passphrase is not None else "PRIVATE"
    assert path.read_text().startswith(f"-----BEGIN {begin} KEY-----\n")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o377, 0o777])
def test_the_file_has_mode_600_whatever_the_umask(umask, tmp_path):
    before = os.umask(umask)
    try:
        save_key(tmp_path / "key.pem", KEY)
    finally:
        os.umask(before)
    assert mode(tmp_path / "key.pem") == 0o600


def test_the_file_has_mode_600_from_the_moment_it_exists(tmp_path, monkeypatch):
    """Seen by its very creation, with the widest umask, and before a byte is in it."""
    seen = []

    def fchmod(descriptor, wanted):
        status = os.fstat(descriptor)
        seen.append((stat.S_IMODE(status.st_mode), status.st_size))
        os.chmod(descriptor, wanted)

    monkeypatch.setattr(os, "fchmod", fchmod)
    before = os.umask(0)
    try:
        save_key(tmp_path / "key.pem", KEY)
    finally:
        os.umask(before)
    assert seen == [(0o600, 0)]


def test_a_key_is_never_overwritten(tmp_path):
    path = tmp_path / "key.pem"
    path.write_text("precious")
    with pytest.raises(KeyUnusable, match=r"key\.pem exists already, and a key is never overwritten"):
        save_key(path, KEY)
    assert path.read_text() == "precious"
    with pytest.raises(KeyUnusable, match="is a directory; name a file"):
        save_key(tmp_path, KEY)


@pytest.mark.parametrize("there", [True, False])
def test_a_symbolic_link_is_not_followed(there, tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    if there:
        save_key(target, KEY)
    before = target.read_bytes() if there else None
    with pytest.raises(KeyUnusable, match="exists already"):
        save_key(link, generate())
    with pytest.raises(KeyUnusable, match="is a symbolic link; name the file of the key itself"):
        load_key(link)
    assert (target.read_bytes() if target.exists() else None) == before


def test_what_was_begun_is_removed(tmp_path, monkeypatch):
    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(KeyUnusable, match=r"cannot be written .*: No space left on device"):
        save_key(tmp_path / "key.pem", KEY)
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_rights_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fchmod", lambda descriptor, _wanted: os.chmod(descriptor, 0o644))  # as vfat does
    with pytest.raises(KeyUnusable, match="cannot keep a file from others"):
        save_key(tmp_path / "key.pem", KEY)
    assert list(tmp_path.iterdir()) == []


def test_places_that_cannot_be_written(tmp_path):
    with pytest.raises(KeyUnusable, match="No such file or directory"):
        save_key(tmp_path / "no" / "key.pem", KEY)
    with pytest.raises(KeyUnusable, match="cannot be written"):
        save_key("a\0b", KEY)
    with pytest.raises(KeyUnusable, match="File name too long"):
        save_key(tmp_path / ("x" * 300), KEY)


@pytest.mark.parametrize("passphrase", ["", "x" * 1024, "ü" * 512])
def test_passphrases_that_cannot_be(passphrase, tmp_path):
    with pytest.raises(KeyUnusable, match="a passphrase has 1 to 1023 bytes"):
        save_key(tmp_path / "key.pem", KEY, passphrase)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("given_mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o666, 0o777])
def test_a_file_that_others_may_use_is_refused(given_mode, tmp_path):
    path = tmp_path / "key.pem"
    save_key(path, KEY)
    path.chmod(given_mode)
    with pytest.raises(KeyUnusable, match=r"others than its owner may use .*key\.pem: run chmod 600"):
        load_key(path)
    path.chmod(0o400)
    assert load_key(path).public == KEY.public


def test_passphrases_missing_wrong_and_for_nothing(tmp_path):
    closed, plain = tmp_path / "closed.pem", tmp_path / "plain.pem"
    save_key(closed, KEY, "right")
    save_key(plain, KEY)
    with pytest.raises(KeyUnusable, match=r"closed\.pem is protected by a passphrase; give it with --pass"):
        load_key(closed)
    for wrong in ("wrong", "Right", "right "):
        with pytest.raises(KeyUnusable, match="the passphrase is wrong, or the file is damaged"):
            load_key(closed, wrong)
    with pytest.raises(KeyUnusable, match="has no passphrase, yet one is given"):
        load_key(plain, "right")
    with pytest.raises(KeyUnusable, match="1 to 1023 bytes"):
        load_key(closed, "")


def test_every_wrong_passphrase_is_one_line(tmp_path):
    """One in 256 passes the padding's check: what comes out then must not be taken, nor raise something else."""
    save_key(tmp_path / "key.pem", KEY, "right")
    for number in range(1000):
        with pytest.raises(KeyUnusable, match="the passphrase is wrong, or the file is damaged"):
            load_key(tmp_path / "key.pem", f"wrong {number}")


def private(path, data):
    path.write_bytes(data)
    path.chmod(0o600)
    return path


RSA = generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
PUBLIC = (
    b"-----BEGIN PUBLIC KEY-----\n"
    b"MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n"
    b"-----END PUBLIC KEY-----\n"
)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no private key in PEM"),
        (b"junk", "no private key in PEM"),
        (bytes(1000), "no private key in PEM"),
        (KEY.pem()[:60], "no private key in PEM"),
        (KEY.pem().replace(b"M", b"N"), "no private key in PEM"),
        (KEY.public.text().encode(), "no private key in PEM"),
        (PUBLIC, "no private key in PEM"),
        (RSA, "is not an Ed25519 key"),
        (KEY.pem() + b"#" * 20_000, "too large for a key"),
    ],
    ids=["empty", "junk", "zeros", "short", "damaged", "text", "public", "rsa", "large"],
)
def test_what_is_no_key(data, message, tmp_path):
    with pytest.raises(KeyUnusable, match=message) as caught:
        load_key(private(tmp_path / "key.pem", data))
    assert str(caught.value).isprintable()


def test_files_that_are_none(tmp_path):
    with pytest.raises(KeyUnusable, match="does not exist; make a key with plan-swarm keygen"):
        load_key(tmp_path / "key.pem")
    with pytest.raises(KeyUnusable, match="is not a plain file"):
        load_key(tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(KeyUnusable, match="is not a plain file"):
        load_key(tmp_path / "pipe")  # and does not wait for a writer
    with pytest.raises(KeyUnusable, match="is not a plain file"):
        load_key("/dev/zero")
    with pytest.raises(KeyUnusable, match=r"evil\\x1b\[2J does not exist"):
        load_key("evil\x1b[2J")
    with pytest.raises(KeyUnusable, match="cannot be read"):
        load_key("a\0b")


@given(st.binary(max_size=300))
def test_any_bytes_are_a_key_or_refused(tmp_path_factory, data):
    path = private(tmp_path_factory.getbasetemp() / "any.pem", data)
    with pytest.raises(KeyUnusable):
        load_key(path)


def test_openssl_reads_the_file_where_it_is_there(tmp_path):
    save_key(tmp_path / "key.pem", KEY, "secret")
    command = [
        "openssl",
        "pkey",
        "-in",
        str(tmp_path / "key.pem"),
        "-passin",
        "pass:secret",
        "-pubout",
        "-outform",
        "DER",
    ]
    try:
        done = subprocess.run(command, capture_output=True, check=True)
    except FileNotFoundError:
        pytest.skip("no openssl command here")
    assert done.stdout[-32:] == KEY.public.raw


def test_keys_import_no_network_and_no_solver():
    code = (
        "import sys, planner.keys, planner.envelope, planner.drift; "
        "print([m for m in ('ortools', 'torch', 'hivemind', 'petals') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_signing_key_is_made_of_randomness():
    assert len({generate().public.raw for _ in range(20)}) == 20
    assert isinstance(generate(), SigningKey)
