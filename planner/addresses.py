"""Whether text is the address of a node in a DHT, as libp2p writes it, so that a mistyped one is named as such."""

from __future__ import annotations

import ipaddress
import re

from planner.text import show

EXAMPLE = "/ip4/192.0.2.1/tcp/31337/p2p/Qm..."
MAX_LENGTH = 1000
_DIGITS = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_HOST = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
_SHA_256, _IDENTITY = b"\x12\x20", b"\x00"


def wrong_with(address: str) -> str | None:
    """Say in a few words what keeps `address` from being the multiaddress of a peer; None where nothing does.

    What comes after the port is left to libp2p, which knows many transports; only the peer id at the end is checked.
    """
    if len(address) > MAX_LENGTH:
        return f"it has over {MAX_LENGTH:,} characters"
    slash, *parts = address.split("/")
    if slash or len(parts) < 4 or not all(parts) or re.search(r"[\s,]", address):
        return "it is not a multiaddress"
    (kind, host, transport, port), (name, peer_id) = parts[:4], parts[-2:]
    if name != "p2p":
        return "it does not end in /p2p/ and a peer id"
    if kind not in _HOSTS:
        return f"it begins with {show(kind)}, not with ip4, ip6 or dns"
    if not _HOSTS[kind](host):
        return f"{show(host)} is no {_KINDS.get(kind, 'name of a host')}"
    if transport in ("tcp", "udp") and not (re.fullmatch("[0-9]{1,5}", port) and 0 < int(port) < 2**16):
        return f"{show(port)} is no port"
    return None if _is_peer_id(peer_id) else f"{show(peer_id)} is no peer id"


def _is_ip(version: int, text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == version
    except ValueError:
        return False


def _is_host(text: str) -> bool:
    return _HOST.fullmatch(text) is not None


_HOSTS = {
    "ip4": lambda text: _is_ip(4, text),
    "ip6": lambda text: _is_ip(6, text),
    **dict.fromkeys(("dns", "dns4", "dns6", "dnsaddr"), _is_host),
}
_KINDS = {"ip4": "IPv4 address", "ip6": "IPv6 address"}


def _is_peer_id(text: str) -> bool:
    """Whether it is a multihash in base 58: the SHA-256 of a key, or a key itself."""
    if not 40 <= len(text) <= 64 or not set(text) <= set(_DIGITS):
        return False
    number = 0
    for digit in text:
        number = number * 58 + _DIGITS.index(digit)
    zeros = len(text) - len(text.lstrip(_DIGITS[0]))
    content = bytes(zeros) + number.to_bytes((number.bit_length() + 7) // 8, "big")
    return content[:1] in (_IDENTITY, _SHA_256[:1]) and content[1] == len(content) - 2
