#!/usr/bin/env python3
"""Writes vectors.json: envelopes as a program that is not this project's makes them.

Needs PyNaCl (libsodium). Canonical JSON is Python's: the names are ASCII and the numbers
integers, where sorting and printing are as RFC 8785 has them.

    ./vectors.py > vectors.json
"""
import base64
import json

import nacl
import nacl.bindings
import nacl.signing

LABEL = b"peerrelay/envelope/v1\0"
ROOM = "018f6b1e-7f2a-7c3d-9a10-0123456789ad"
ALICE = "018f6b1e-7f2a-7c3d-9a10-0123456789ab"
BOB = "018f6b1e-7f2a-7c3d-9a10-0123456789ac"


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def b64(data):
    return base64.b64encode(data).decode()


def make(about, members, plaintext, key, nonce, seed):
    envelope = dict(v=1, session_id=ROOM, nonce=b64(nonce), **members)
    envelope["from"] = ALICE
    aad = canonical(envelope)
    if nonce:
        ct = nacl.bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(plaintext, aad, nonce, key)
    else:
        ct = plaintext
    envelope["ct"] = b64(ct)
    signed = LABEL + canonical(envelope)
    envelope["sig"] = b64(nacl.signing.SigningKey(seed).sign(signed).signature)
    return {
        "about": about,
        "identity_seed": seed.hex(),
        "identity": bytes(nacl.signing.SigningKey(seed).verify_key).hex(),
        "key": key.hex(),
        "plaintext": plaintext.hex(),
        "aad": aad.decode(),
        "signed": signed.hex(),
        "envelope": canonical(envelope).decode(),
        # The same envelope, spelled in another way: it has the same signature.
        "spelled": json.dumps(dict(reversed(sorted(envelope.items()))), indent=1, ensure_ascii=True),
    }


def some(n, start):
    return bytes((start + 7 * i) % 256 for i in range(n))


seed, key = some(32, 0), some(32, 100)
cases = [
    ("a message to the room, with a sender key",
     dict(id="m-1", to=ROOM, kind="message", gen=7, seq=12, ts=1790000000000, kid="AAECAwQFBgcICQoLDA0ODw"),
     b'{"parts":[],"v":1}', some(24, 3)),
    ("a private message that declares a file",
     dict(id='"\\~!', to=BOB, kind="message", gen=0, seq=0, ts=0, enc="pairwise",
          file=dict(name='a/"\\ \u00e9\u20ac\U0001f600\u200b\ufeff<&>', mimeType="text/plain; \u00fc", sizeBytes=700000)),
     some(300, 9), some(24, 200)),
    ("a message of a direct room",
     dict(id="m" * 128, to=ROOM, kind="message", gen=1, seq=2**53 - 1, ts=2**53 - 1, hdr=b64(some(40, 1))),
     b"x", some(24, 1)),
    ("a message whose scheme has no nonce",
     dict(id="m-2", to=ROOM, kind="message", gen=3, seq=1, ts=1790000000001), some(50, 2), b""),
    ("a notice",
     dict(id="n-1", to=ROOM, kind="notice", gen=2, seq=3, ts=1790000000002, expires_at=1790000600000,
          kid="_____________________w"),
     b"alert", some(24, 77)),
    ("a sender key", dict(id="s-1", to=BOB, kind="senderkey", gen=2, seq=4, ts=1790000000003), b"", some(24, 78)),
    ("control", dict(id="c-1", to=BOB, kind="control", gen=2, seq=5, ts=1790000000004), b"{}", some(24, 79)),
    ("a key request", dict(id="k-1", to=BOB, kind="key_request", gen=2, seq=6, ts=1790000000005), b"{}", some(24, 80)),
]
vectors = [make(about, members, plaintext, key, nonce, seed) for about, members, plaintext, nonce in cases]
about = "key and identity_seed are hexadecimal, as are plaintext and signed; the rest is text. Without a nonce, ct is the plaintext. "
about += f"Made by vectors.py (PyNaCl {nacl.__version__})."
print(json.dumps({"about": about, "envelopes": vectors}, indent=1))
