#!/usr/bin/python3
"""Makes vectors.json, with nothing of this project: HMAC of the standard library, and
XChaCha20-Poly1305 of libsodium (Debian python3-nacl 1.5.0). Run once:

    testdata/vectors.py > testdata/vectors.json
"""
import base64
import hashlib
import hmac
import json
import struct
import sys

from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_encrypt as encrypt


def noise(label, size):
    """Bytes that look random, the same ones each time."""
    return hashlib.shake_256(label.encode()).digest(size)


def b64(raw):
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def jcs(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def chain_at(first, iteration):
    for _ in range(iteration):
        first = hmac.digest(first, b"\x02", "sha256")
    return first


def generation(name, gen, iterations, sizes):
    first, kid = noise(name + " chain key", 32), noise(name + " kid", 16)
    messages = []
    for iteration, size in zip(iterations, sizes):
        ck = chain_at(first, iteration)
        key = hmac.digest(ck, b"\x01", "sha256")
        nonce = noise(f"{name} nonce {iteration}", 24)
        text = noise(f"{name} text {iteration}", size)
        aad = jcs({"v": 1, "from": name, "gen": gen, "kid": b64(kid), "nonce": b64(nonce)}).encode()
        prefix = struct.pack(">I", iteration)
        messages.append({
            "iteration": iteration, "chain_key": ck.hex(), "message_key": key.hex(), "nonce": nonce.hex(),
            "plaintext": text.hex(), "aad": aad.hex(), "ct": (prefix + encrypt(text, prefix + aad, nonce, key)).hex(),
        })
    given = {i: jcs({"v": 1, "type": "sender_key", "kid": b64(kid), "gen": gen, "iteration": i, "ck": b64(chain_at(first, i))})
             for i in (0, 3, 16383)}
    request = noise(name + " request", 16)
    return {
        "sender": name, "gen": gen, "kid": b64(kid), "chain_key": first.hex(), "messages": messages,
        "distributions": [{"iteration": i, "payload": text} for i, text in given.items()],
        "request_id": request.hex(),
        "key_request": jcs({"v": 1, "type": "key_request", "id": b64(request), "kid": b64(kid), "gen": gen}),
        "key_unavailable": jcs({"v": 1, "type": "key_unavailable", "kid": b64(kid), "gen": gen}),
    }


def deliveries(seed):
    """What a receiver with the key of iteration 3 says of messages in some order, by a model
    that remembers sets instead of chains."""
    start, following, kept, steps = 3, 3, [], []
    state = noise(f"deliveries {seed}", 4 * 400)
    for at in range(0, len(state), 4):
        pick, shift = struct.unpack(">HH", state[at:at + 4])
        iteration = max(0, following + shift % 40 - 30)
        if pick % 50 == 0:
            iteration = following + 1000 + pick // 50 % 2
        if iteration < start:
            verdict = "before"
        elif iteration >= following:
            if iteration - following > 1000:
                verdict = "far"
            else:
                kept = (kept + list(range(following, iteration)))[-2000:]
                following, verdict = iteration + 1, "opened"
        elif iteration in kept:
            kept.remove(iteration)
            verdict = "opened"
        else:
            verdict = "duplicate"
        steps.append(f"{iteration}:{verdict}")
    return " ".join(steps)


json.dump({
    "generations": [
        generation("alice", 1, [0, 1, 2, 3, 1000, 16383], [0, 1, 64, 1024, 17, 5]),
        generation("bob", 9007199254740991, [0, 5, 6], [1, 2, 3]),
    ],
    "deliveries": [deliveries(seed) for seed in range(8)],
}, sys.stdout, indent=1)
print()
