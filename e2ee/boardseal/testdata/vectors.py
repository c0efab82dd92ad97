#!/usr/bin/env python3
"""Writes vectors.json: events of the Board as a program that is not this project's makes them.

Needs PyNaCl (libsodium); HKDF is written out as RFC 5869 has it.

    ./vectors.py > vectors.json
"""
import hashlib
import hmac
import json
import struct
import uuid

import nacl
import nacl.bindings
import nacl.signing

ROOM = "018f6b1e-7f2a-7c3d-9a10-0123456789ad"
CARD = "018f6b1e-7f2a-7c3d-9a10-0123456789c1"
EVENTS = ["018f6b1e-7f2a-7c3d-9a10-0123456789e%d" % i for i in range(6)]
TYPES = ["created", "updated", "comment", "option_chosen", "approval", "closed"]
KINDS = ["idea", "task", "question", "decision"]


def some(n, start):
    return bytes((start + 11 * i) % 256 for i in range(n))


def hkdf(ikm, salt, info):
    """One block is enough for 32 bytes."""
    prk = hmac.new(salt, ikm, hashlib.sha256).digest()
    return hmac.new(prk, info + b"\x01", hashlib.sha256).digest()


def xchacha(key, nonce, text, aad):
    return nacl.bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(text, aad, nonce, key)


class Device:
    def __init__(self, participant, seed, private):
        self.id, self.seed, self.private = participant, seed, private
        self.identity = nacl.signing.SigningKey(seed)
        self.agreement = nacl.bindings.crypto_scalarmult_base(private)

    def wrap_key(self, other):
        secret = nacl.bindings.crypto_scalarmult(self.private, other.agreement)
        return hkdf(secret, uuid.UUID(ROOM).bytes, b"peerrelay/board/v1\0" + uuid.UUID(self.id).bytes + uuid.UUID(other.id).bytes)


devices = {
    "carol": Device("018f6b1e-7f2a-7c3d-9a10-0123456789af", some(32, 11), some(32, 12)),
    "alice": Device("018f6b1e-7f2a-7c3d-9a10-0123456789ab", some(32, 1), some(32, 2)),
    "bob": Device("018f6b1e-7f2a-7c3d-9a10-0123456789ac", some(32, 3), some(32, 4)),
}


def case(author, others, number, text, key, nonce, kind="", base=0, basis=""):
    a, event = devices[author], EVENTS[number]
    header = bytes([1, 1 + number, 1 + KINDS.index(kind) if kind else 0])
    header += b"".join(uuid.UUID(i).bytes for i in (ROOM, CARD, event, a.id))
    header += struct.pack(">Q", base) + (uuid.UUID(basis).bytes if basis else bytes(16))
    recipients = sorted([a] + [devices[o] for o in others], key=lambda d: uuid.UUID(d.id).bytes)
    content = header + hashlib.sha256(b"peerrelay/board-key/v1\0" + key).digest() + nonce + struct.pack(">H", len(recipients))
    for r in recipients:
        content += uuid.UUID(r.id).bytes + xchacha(a.wrap_key(r), nonce, key, header)
    content += xchacha(key, nonce, text, header)
    return {
        "author": author, "recipients": [name for r in recipients for name, d in devices.items() if d is r],
        "type": TYPES[number], "kind": kind, "event": event, "base": base, "basis": basis,
        "text": text.decode(), "key": key.hex(), "nonce": nonce.hex(), "content": content.hex(),
        "signature": a.identity.sign(b"peerrelay/board-event/v1\0" + content).signature.hex(),
    }


vectors = {
    "about": "Keys, seeds, nonces, content and signatures are hexadecimal; the rest is text. Made by vectors.py (PyNaCl %s)." % nacl.__version__,
    "devices": {
        name: {
            "participant": d.id, "identity_seed": d.seed.hex(), "agreement_private": d.private.hex(),
            "identity": bytes(d.identity.verify_key).hex(), "agreement": d.agreement.hex(),
            "agreement_signature": d.identity.sign(b"peerrelay/agreement-key/v1\0" + d.agreement).signature.hex(),
        } for name, d in devices.items()
    },
    "room": ROOM,
    "card": CARD,
    "events": [
        case("alice", ["bob"], 0, "gr\u00fc\u00df dich".encode(), some(32, 20), some(24, 21), kind="decision"),
        case("bob", ["alice", "carol"], 1, b"x", some(32, 22), some(24, 23), base=1, basis=EVENTS[0]),
        case("carol", ["bob", "alice"], 2, b'{"comment":"later","v":1}', some(32, 24), some(24, 25), basis=EVENTS[1]),
        case("bob", ["alice", "carol"], 3, b"{}", some(32, 26), some(24, 27), base=2**53 - 1),
        case("alice", ["bob", "carol"], 4, b'{"approval":"approved","v":1}', some(32, 28), some(24, 29), base=4, basis=EVENTS[1]),
        case("alice", [], 5, some(1000, 65).hex().encode(), some(32, 30), some(24, 31), base=5, basis=EVENTS[1]),
    ],
}
print(json.dumps(vectors, indent=1))
