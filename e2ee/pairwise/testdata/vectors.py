#!/usr/bin/env python3
"""Writes vectors.json: private envelopes as a program that is not this project's makes them.

Needs PyNaCl (libsodium); HKDF is written out as RFC 5869 has it.

    ./vectors.py > vectors.json
"""
import base64
import hashlib
import hmac
import json
import uuid

import nacl
import nacl.bindings
import nacl.signing

ROOM = "018f6b1e-7f2a-7c3d-9a10-0123456789ad"
ALICE = "018f6b1e-7f2a-7c3d-9a10-0123456789ab"
BOB = "018f6b1e-7f2a-7c3d-9a10-0123456789ac"


def some(n, start):
    return bytes((start + 11 * i) % 256 for i in range(n))


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def b64(data):
    return base64.b64encode(data).decode()


def hkdf(ikm, salt, info):
    """One block is enough for 32 bytes."""
    prk = hmac.new(salt, ikm, hashlib.sha256).digest()
    return hmac.new(prk, info + b"\x01", hashlib.sha256).digest()


class Device:
    def __init__(self, participant, seed, private):
        self.id, self.seed, self.private = participant, seed, private
        self.identity = nacl.signing.SigningKey(seed)
        self.agreement = nacl.bindings.crypto_scalarmult_base(private)

    def key_for(self, other):
        secret = nacl.bindings.crypto_scalarmult(self.private, other.agreement)
        info = b"peerrelay/pairwise/v1\0" + uuid.UUID(self.id).bytes + uuid.UUID(other.id).bytes
        return hkdf(secret, uuid.UUID(ROOM).bytes, info)

    def seal(self, other, nonce, payload, **members):
        envelope = dict(v=1, session_id=ROOM, to=other.id, nonce=b64(nonce), **members)
        envelope["from"] = self.id
        ct = nacl.bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(payload, canonical(envelope), nonce, self.key_for(other))
        envelope["ct"] = b64(ct)
        signature = self.identity.sign(b"peerrelay/envelope/v1\0" + canonical(envelope)).signature
        envelope["sig"] = b64(signature)
        return canonical(envelope).decode()


alice, bob = Device(ALICE, some(32, 1), some(32, 2)), Device(BOB, some(32, 3), some(32, 4))
devices = {"alice": alice, "bob": bob}


def case(sender, recipient, kind, payload, nonce, **members):
    a, b = devices[sender], devices[recipient]
    return {
        "from": sender,
        "to": recipient,
        "nonce": nonce.hex(),
        "payload": payload.decode(),
        "envelope": a.seal(b, nonce, payload, id=kind + "-1", kind=kind, gen=3, seq=4, ts=1790000000000, **members),
    }


text = canonical({"v": 1, "parts": [{"type": "text", "text": "gr\u00fc\u00df dich\n\U0001f600 <&>"}]})
data = some(50, 5)
a_file = canonical({"v": 1, "parts": [
    {"type": "text", "text": "see"},
    {"type": "file", "name": "plan b.pdf", "mime_type": "application/pdf", "size_bytes": len(data), "data": b64(data)},
]})
vectors = {
    "about": "Keys, seeds and nonces are hexadecimal; the rest is text. Made by vectors.py (PyNaCl %s)." % nacl.__version__,
    "devices": {
        name: {
            "participant": d.id, "identity_seed": d.seed.hex(), "agreement_private": d.private.hex(),
            "identity": bytes(d.identity.verify_key).hex(), "agreement": d.agreement.hex(),
            "agreement_signature": d.identity.sign(b"peerrelay/agreement-key/v1\0" + d.agreement).signature.hex(),
        } for name, d in devices.items()
    },
    "session": ROOM,
    "keys": {"alice to bob": alice.key_for(bob).hex(), "bob to alice": bob.key_for(alice).hex()},
    "envelopes": [
        case("alice", "bob", "message", text, some(24, 6), enc="pairwise"),
        case("bob", "alice", "message", a_file, some(24, 7), enc="pairwise",
             file={"name": "plan b.pdf", "mimeType": "application/pdf", "sizeBytes": len(data)}),
        case("alice", "bob", "senderkey", b'{"anything":1}', some(24, 8)),
        case("bob", "alice", "control", b"", some(24, 9)),
        case("bob", "alice", "key_request", b"x", some(24, 10)),
    ],
}
print(json.dumps(vectors, indent=1))
