#!/usr/bin/python3
"""Makes transcripts.json: X3DH and Double Ratchet conversations of independent code.

Debian: python3-x3dh 1.0.3-1, python3-doubleratchet 1.0.3-1, python3-nacl, python3-cryptography.
The key agreement is x3dh's, the ratchets are doubleratchet's, with its HKDF and its separate
HMACs, XChaCha20-Poly1305 is libsodium's and Ed25519 is cryptography's. This script only fills
in the labels and the encoding of additional data and headers (ratchet/doc.go).

All randomness is SHAKE-256 of a fixed seed, so that it prints the same bytes each time:

    /usr/bin/python3 make_transcripts.py > transcripts.json
"""

import asyncio
import hashlib
import json
import random
import struct

import doubleratchet
import nacl.bindings
import x3dh
import x3dh.base_state
import x3dh.identity_key_pair
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from doubleratchet.recommended import HashFunction, diffie_hellman_ratchet_curve25519, kdf_hkdf, kdf_separate_hmacs

RAW = (serialization.Encoding.Raw, serialization.PublicFormat.Raw)


class Stream:
    """Bytes that are the same in every run, and a list of those drawn for each party."""

    def __init__(self, seed):
        self.seed, self.count, self.party, self.drawn = seed, 0, None, {"owner": [], "agent": []}

    def bytes(self, n):
        self.count += 1
        out = hashlib.shake_256(f"{self.seed}/{self.count}".encode()).digest(n)
        if self.party is not None:
            self.drawn[self.party].append(out.hex())
        return out


STREAM = Stream("unset")


class Secrets:
    """Stands in for the module secrets in x3dh."""

    @staticmethod
    def token_bytes(n):
        return STREAM.bytes(n)

    @staticmethod
    def choice(items):
        return sorted(items)[0]


x3dh.base_state.secrets = Secrets


class State(x3dh.BaseState):
    @staticmethod
    def _encode_public_key(_format, pub):
        return pub


class Ratchet(diffie_hellman_ratchet_curve25519.DiffieHellmanRatchet):
    @staticmethod
    def _generate_priv():
        return STREAM.bytes(32)


class RootKDF(kdf_hkdf.KDF):
    @staticmethod
    def _get_hash_function():
        return HashFunction.SHA_256

    @staticmethod
    def _get_info():
        return b"peerrelay/ratchet-root/v1\0"


class ChainKDF(kdf_separate_hmacs.KDF):
    @staticmethod
    def _get_hash_function():
        return HashFunction.SHA_256


class AEAD(doubleratchet.AEAD):
    @staticmethod
    async def encrypt(plaintext, key, associated_data):
        nonce = STREAM.bytes(24)
        return nonce + nacl.bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(plaintext, associated_data, nonce, key)

    @staticmethod
    async def decrypt(ciphertext, key, associated_data):
        return nacl.bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(ciphertext[24:], associated_data, ciphertext[:24], key)


class DoubleRatchet(doubleratchet.DoubleRatchet):
    @staticmethod
    def _build_associated_data(associated_data, header):
        return associated_data + encode(header)


def encode(header):
    return header.ratchet_pub + struct.pack(">II", header.previous_sending_chain_length, header.sending_chain_length)


PARAMS = dict(
    diffie_hellman_ratchet_class=Ratchet, root_chain_kdf=RootKDF, message_chain_kdf=ChainKDF,
    message_chain_constant=b"\x02\x01",  # the next chain key, then the message key
    dos_protection_threshold=1000, max_num_skipped_message_keys=2000, aead=AEAD)


def device():
    """An Ed25519 identity key, and the X25519 agreement key as identity key of x3dh."""
    seed, agreement = STREAM.bytes(32), STREAM.bytes(32)
    signer = Ed25519PrivateKey.from_private_bytes(seed)
    state = State.create(x3dh.IdentityKeyFormat.CURVE_25519, x3dh.HashFunction.SHA_256, b"peerrelay/x3dh/v1\0",
                         x3dh.identity_key_pair.IdentityKeyPairPriv(agreement))
    public = X25519PrivateKey.from_private_bytes(agreement).public_key().public_bytes(*RAW)
    assert state.bundle.identity_key == public
    return {
        "signer": signer, "state": state, "public": public, "identity": signer.public_key().public_bytes(*RAW),
        "json": {
            "identity_seed": seed.hex(), "agreement_private": agreement.hex(),
            "identity": signer.public_key().public_bytes(*RAW).hex(), "agreement": public.hex(),
            "agreement_signature": signer.sign(b"peerrelay/agreement-key/v1\0" + public).hex(),
        },
    }


async def conversation(name, one_time, rounds, reorder):
    global STREAM
    STREAM = Stream("peer relay " + name)
    rng = random.Random(name)
    owner, agent = device(), device()
    room = "room-" + name
    signed_id, one_time_id, started = 7, 0, 1_790_000_000_123
    if one_time:
        one_time_id = 2_147_483_647
        agent["state"].generate_pre_keys(1)

    before = STREAM.count
    STREAM.party = "owner"
    secret, _, head = await owner["state"].get_shared_secret_active(agent["state"].bundle, require_pre_key=one_time)
    STREAM.party = None
    assert STREAM.count == before + 1  # the ephemeral key
    again, _, signed_pair = await agent["state"].get_shared_secret_passive(head, require_pre_key=one_time)
    assert secret == again

    ad = b"peerrelay/x3dh-ad/v1\0" + owner["identity"] + owner["public"] + agent["identity"] + agent["public"]
    ad += head.ephemeral_key + struct.pack(">IIQH", signed_id, one_time_id, started, len(room)) + room.encode()
    session = hashlib.sha256(b"peerrelay/x3dh-session/v1\0" + ad).digest()[:16]
    part = owner["identity"] + head.ephemeral_key + struct.pack(">IIQ", signed_id, one_time_id, started)

    parties, messages, events, answered = {}, [], [], False
    waiting = {"owner": [], "agent": []}

    async def send(party):
        plaintext = hashlib.shake_256(f"{name} text {len(messages)}".encode()).digest(rng.choice([0, 1, 40, 300]))
        STREAM.party = party
        if party not in parties:
            parties[party], m = await DoubleRatchet.encrypt_initial_message(
                shared_secret=secret, recipient_ratchet_pub=head.signed_pre_key, message=plaintext, associated_data=ad, **PARAMS)
        else:
            m = await parties[party].encrypt_message(plaintext, ad)
        STREAM.party = None
        first = party == "owner" and not answered
        hdr = bytes([1, 1 if first else 0]) + session + encode(m.header) + (part if first else b"")
        waiting["agent" if party == "owner" else "owner"].append(len(messages))
        events.append({"op": "seal", "party": party, "message": len(messages)})
        messages.append({"plaintext": plaintext.hex(), "hdr": hdr.hex(), "nonce": m.ciphertext[:24].hex(), "ct": m.ciphertext[24:].hex(), "m": m})

    async def receive(party):
        nonlocal answered
        index = waiting[party].pop(rng.randrange(len(waiting[party])) if reorder else 0)
        m = messages[index]["m"]
        STREAM.party = party
        if party not in parties:
            parties[party], plaintext = await DoubleRatchet.decrypt_initial_message(
                shared_secret=secret, own_ratchet_priv=signed_pair.priv, message=m, associated_data=ad, **PARAMS)
        else:
            plaintext = await parties[party].decrypt_message(m, ad)
        STREAM.party = None
        assert plaintext.hex() == messages[index]["plaintext"]
        answered = answered or party == "owner"
        events.append({"op": "open", "party": party, "message": index})

    for _ in range(rounds):
        party = rng.choice(["owner", "agent"])
        if party == "owner" or party in parties:
            for _ in range(rng.randrange(1, 5)):
                await send(party)
        party = rng.choice(["owner", "agent"])
        for _ in range(rng.randrange(0, 4)):
            if waiting[party]:
                await receive(party)
    for party in ("agent", "owner", "agent"):
        while waiting[party]:
            await receive(party)

    bundle = agent["state"].bundle
    prekeys = sorted(agent["state"].model.pre_keys)
    signature = agent["signer"].sign(b"peerrelay/signed-prekey/v1\0" + struct.pack(">I", signed_id) + bundle.signed_pre_key)
    return {
        "name": name, "room": room, "started": started, "owner": owner["json"], "agent": agent["json"],
        "signed_prekey": {"id": signed_id, "private": signed_pair.priv.hex(), "public": bundle.signed_pre_key.hex(), "signature": signature.hex()},
        "one_time_prekey": {"id": one_time_id, "private": prekeys[0].hex(), "public": sorted(bundle.pre_keys)[0].hex()} if one_time else None,
        "secret": secret.hex(), "ad": ad.hex(), "session": session.hex(), "drawn": STREAM.drawn,
        "messages": [{k: v for k, v in m.items() if k != "m"} for m in messages], "events": events,
    }


async def main():
    conversations = [
        await conversation("in-order", True, 30, False),
        await conversation("shuffled", True, 90, True),
        await conversation("no-one-time-prekey", False, 40, True),
    ]
    print(json.dumps({
        "about": "Binary values are hexadecimal. Made by make_transcripts.py; drawn is what each side took from its source of "
                 "randomness, in order: the owner's ephemeral key, ratchet keys, nonces.",
        "conversations": conversations}, indent=1))


asyncio.run(main())
