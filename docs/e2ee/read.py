#!/usr/bin/env python3
"""Reads examples.json as docs/e2ee.md says, and nothing else: written from that page alone.

Needs PyNaCl (libsodium; Debian python3-nacl). It verifies and opens every example, makes each
of them anew from the private keys, and prints what it opened and what it made:

    docs/e2ee/read.py > docs/e2ee/read.json
"""
import base64
import hashlib
import hmac
import json
import pathlib
import re
import struct
import uuid

import nacl.bindings as sodium
import nacl.signing

FILE = pathlib.Path(__file__).with_name("examples.json")


class Refused(Exception):
    pass


def require(kept, why):
    if not kept:
        raise Refused(why)


# Words and primitives


def label(text):
    return f"peerrelay/{text}/v1".encode() + b"\0"


def dh(private, public):
    secret = sodium.crypto_scalarmult(private, public)
    require(any(secret), "an all-zero secret")
    return secret


def mac(key, message):
    return hmac.digest(key, message, "sha256")


def hkdf(ikm, salt, info, length):
    prk, out, block = mac(salt, ikm), b"", b""
    for i in range(1, -(-length // 32) + 1):
        block = mac(prk, block + info + bytes([i]))
        out += block
    return out[:length]


def seal(key, nonce, text, aad):
    return sodium.crypto_aead_xchacha20poly1305_ietf_encrypt(text, aad, nonce, key)


def unseal(key, nonce, ct, aad):
    return sodium.crypto_aead_xchacha20poly1305_ietf_decrypt(ct, aad, nonce, key)


def b64(data):
    return base64.b64encode(data).decode()


def unb64(text):
    data = base64.b64decode(text, validate=True)
    require(b64(data) == text, "another spelling of base64")
    return data


def b64url(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def unb64url(text):
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    require(b64url(data) == text, "another spelling of base64url")
    return data


def id16(text):
    require(re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", text), "no UUID in small letters")
    return uuid.UUID(text).bytes


# Canonical JSON


def members(pairs):
    require(len({name for name, _ in pairs}) == len(pairs), "a name twice")
    return dict(pairs)


def number(text):
    require(re.fullmatch(r"0|[1-9][0-9]*", text) and int(text) < 2**53, "a number that is none here")
    return int(text)


def refuse_number(text):
    raise Refused("a fraction or an exponent")


def parse(raw):
    try:
        value = json.loads(raw.decode(), object_pairs_hook=members, parse_int=number, parse_float=refuse_number, parse_constant=refuse_number)
        json.dumps(value, ensure_ascii=False).encode()  # no half of a surrogate pair
    except (ValueError, RecursionError) as e:
        raise Refused("no JSON") from e
    require(isinstance(value, dict), "no object")
    require(depth(value) <= 32, "nested too deeply")
    return value


def depth(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max((depth(v) for v in inner), default=0)


def canonical(value):
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be"))
        return b"{" + b",".join(canonical(n) + b":" + canonical(value[n]) for n in names) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(map(canonical, value)) + b"]"
    return json.dumps(value, ensure_ascii=False).encode()


def without(envelope, *names):
    return canonical({n: v for n, v in envelope.items() if n not in names})


# Envelopes

ALWAYS = {"v", "id", "session_id", "from", "to", "kind", "gen", "seq", "ts", "nonce", "ct", "sig"}
TEXTS = {"id", "session_id", "from", "to", "kind", "nonce", "ct", "sig", "kid", "enc", "hdr"}
NUMBERS = {"v", "gen", "seq", "ts", "expires_at"}


def check(e):
    optional = {"message": {"kid", "enc", "file", "hdr"}, "notice": {"kid", "expires_at"}}.get(e.get("kind"), {"kid"})
    require(ALWAYS <= set(e) <= ALWAYS | optional, "a member is missing, or is none")
    require(all(type(v) is str for n, v in e.items() if n in TEXTS), "a member is no text")
    require(all(type(v) is int for n, v in e.items() if n in NUMBERS), "a member is no number")
    require(e["v"] == 1 and re.fullmatch(r"[\x21-\x7e]{1,128}", e["id"]), "v or id")
    require(e["kind"] in ("message", "notice", "senderkey", "control", "key_request"), "kind")
    for name in ("session_id", "from", "to"):
        id16(e[name])
    require(e["from"] not in (e["to"], e["session_id"]), "from")
    require(len(unb64(e["nonce"])) == 24 and len(unb64(e["sig"])) == 64, "nonce or sig")
    unb64(e["ct"])
    if "kid" in e:
        require(len(unb64url(e["kid"])) == 16, "kid")
    if "enc" in e:
        require(re.fullmatch(r"[a-z0-9_-]{1,32}", e["enc"]), "enc")
    if "hdr" in e:
        require(1 <= len(unb64(e["hdr"])) <= 512, "hdr")
    if e["kind"] == "notice":
        require(e.get("expires_at", 0) > 0 and e["to"] == e["session_id"], "expires_at")


def read(raw, sender, own, room):
    """sender is the device that the envelope says it is from, own the reader's."""
    require(len(raw) <= 65536, "too large")
    e = parse(raw)
    nacl.signing.VerifyKey(sender.identity).verify(label("envelope") + without(e, "sig"), unb64(e["sig"]))
    check(e)
    require(e["from"] == sender.participant and e["session_id"] == room and e["to"] in (room, own.participant), "of another place")
    return e


def make(sender, nonce, cipher, **parts):
    """cipher gets the aad and returns ct; parts are the members, without v, from and nonce."""
    e = {"v": 1, "from": sender.participant, "nonce": b64(nonce), **parts}
    e["ct"] = b64(cipher(canonical(e)))
    e["sig"] = b64(sender.sign(label("envelope") + canonical(e)))
    return canonical(e).decode()


# Devices


class Device:
    def __init__(self, said):
        self.participant, self.private = said["participant"], bytes.fromhex(said["agreement_private"])
        signer = nacl.signing.SigningKey(bytes.fromhex(said["identity_seed"]))
        self.sign = lambda message: signer.sign(message).signature
        self.identity, self.agreement = bytes(signer.verify_key), sodium.crypto_scalarmult_base(self.private)
        require(self.identity.hex() == said["identity"] and self.agreement.hex() == said["agreement"], "other public keys")
        require(self.sign(label("agreement-key") + self.agreement).hex() == said["agreement_signature"], "another signature")


# Pairwise envelopes


def direction(own, peer, room, sender, recipient):
    info = label("pairwise") + id16(sender.participant) + id16(recipient.participant)
    return hkdf(dh(own.private, peer.agreement), id16(room), info, 32)


def open_pairwise(raw, sender, own, room):
    e = read(raw, sender, own, room)
    require(e["to"] == own.participant and (e["kind"] == "message") == (e.get("enc") == "pairwise"), "not pairwise")
    require("kid" not in e and "hdr" not in e and e["kind"] != "notice", "not pairwise")
    return unseal(direction(own, sender, room, sender, own), unb64(e["nonce"]), unb64(e["ct"]), without(e, "ct", "sig"))


# Sender keys


def open_distribution(payload):
    d = parse(payload)
    require(canonical(d) == payload and set(d) == {"ck", "gen", "iteration", "kid", "type", "v"}, "no sender key")
    require(d["type"] == "sender_key" and d["v"] == 1 and 0 <= d["iteration"] < 16384, "no sender key")
    return {"kid": d["kid"], "gen": d["gen"], "next": d["iteration"], "ck": unb64url(d["ck"]), "kept": {}}


def open_room_message(raw, sender, own, room, chain):
    e = read(raw, sender, own, room)
    require(e["to"] == room and e["kind"] in ("message", "notice") and "enc" not in e and "hdr" not in e, "not of a sender key")
    require(e.get("kid") == chain["kid"] and e["gen"] == chain["gen"], "of another key")
    ct = unb64(e["ct"])
    require(len(ct) >= 20, "too short")
    i = struct.unpack(">I", ct[:4])[0]
    ahead, ck, kept = chain["next"], chain["ck"], dict(chain["kept"])
    require(i < 16384 and i <= ahead + 1000, "too far ahead")
    while ahead <= i:
        kept[ahead], ck, ahead = mac(ck, b"\x01"), mac(ck, b"\x02"), ahead + 1
    require(i in kept, "opened before")
    text = unseal(kept.pop(i), unb64(e["nonce"]), ct[4:], ct[:4] + without(e, "ct", "sig"))
    chain.update(next=ahead, ck=ck, kept=kept)
    return text


# Direct rooms


def x3dh(dhs):
    return hkdf(b"\xff" * 32 + b"".join(dhs), bytes(32), label("x3dh"), 32)


def associated(owner, agent, start, room):
    ad = label("x3dh-ad") + owner.identity + owner.agreement + agent.identity + agent.agreement
    return ad + start + struct.pack(">H", len(room)) + room.encode()


def session_id(ad):
    return hashlib.sha256(label("x3dh-session") + ad).digest()[:16]


def root_step(root, secret):
    both = hkdf(secret, root, label("ratchet-root"), 64)
    return both[:32], both[32:]


class Session:
    """The first turns of a ratchet: a message under a new ratchet key is opened or made."""

    def __init__(self, secret, ad, own):
        self.root, self.ad, self.own = secret, ad, own  # own is the private ratchet key

    def open(self, e):
        hdr = unb64(e["hdr"])
        require(hdr[:2] == (b"\x01\x01" if len(hdr) == 138 else b"\x01\x00") and len(hdr) in (58, 138), "hdr")
        require(hdr[2:18] == session_id(self.ad), "of another session")
        key, (pn, n) = hdr[18:50], struct.unpack(">II", hdr[50:58])
        require(n <= 1000 and pn < 2**32 - 1, "too far ahead")
        root, ck = root_step(self.root, dh(self.own, key))
        for _ in range(n):
            ck = mac(ck, b"\x02")
        text = unseal(mac(ck, b"\x01"), unb64(e["nonce"]), unb64(e["ct"]), self.ad + hdr[18:58])
        self.root, self.peer = root, key
        return text

    def make(self, nonce, text, part, private, peer):
        self.own = private
        self.root, ck = root_step(self.root, dh(private, peer))
        counted = sodium.crypto_scalarmult_base(private) + struct.pack(">II", 0, 0)
        hdr = bytes([1, 1 if part else 0]) + session_id(self.ad) + counted + part
        return hdr, seal(mac(ck, b"\x01"), nonce, text, self.ad + counted)


def accept(e, owner, agent, room, signed_prekeys, one_time_prekeys):
    """The agent's session of a first message; the private prekeys are by their ids."""
    hdr = unb64(e["hdr"])
    require(len(hdr) == 138 and hdr[58:90] == owner.identity, "does not begin a session")
    start = hdr[90:138]
    ephemeral, (signed, one_time, _) = start[:32], struct.unpack(">IIQ", start[32:])
    require(signed in signed_prekeys and (one_time == 0 or one_time in one_time_prekeys), "a prekey that is not there")
    private = signed_prekeys[signed]
    dhs = [dh(private, owner.agreement), dh(agent.private, ephemeral), dh(private, ephemeral)]
    if one_time:
        dhs.append(dh(one_time_prekeys[one_time], ephemeral))
    return Session(x3dh(dhs), associated(owner, agent, start, room), private)


# The Board


def wrap_key(own, peer, room, author, recipient):
    return hkdf(dh(own.private, peer.agreement), id16(room), label("board") + id16(author.participant) + id16(recipient.participant), 32)


def open_event(content, signature, room, card, author, own):
    require(len(content) <= 65536 and content[0] == 1, "no event")
    nacl.signing.VerifyKey(author.identity).verify(label("board-event") + content, signature)
    header, commitment, nonce = content[:91], content[91:123], content[123:147]
    require(header[3:19] == id16(room) and header[19:35] == id16(card) and header[51:67] == id16(author.participant), "another event")
    count = struct.unpack(">H", content[147:149])[0]
    rows = [content[149 + 64 * i:213 + 64 * i] for i in range(count)]
    require(1 <= count <= 500 and all(a[:16] < b[:16] for a, b in zip(rows, rows[1:])), "recipients")
    wrapped = {row[:16]: row[16:] for row in rows}[id16(own.participant)]
    key = unseal(wrap_key(own, author, room, author, own), nonce, wrapped, header)
    require(hashlib.sha256(label("board-key") + key).digest() == commitment, "another key")
    return unseal(key, nonce, content[149 + 64 * count:], header)


def make_event(author, others, room, kind, card, event, key, nonce, text):
    header = bytes([1, 1, kind]) + id16(room) + id16(card) + id16(event) + id16(author.participant) + bytes(8 + 16)
    content = header + hashlib.sha256(label("board-key") + key).digest() + nonce + struct.pack(">H", 1 + len(others))
    for to in sorted([author, *others], key=lambda d: id16(d.participant)):
        content += id16(to.participant) + seal(wrap_key(author, to, room, author, to), nonce, key, header)
    content += seal(key, nonce, text, header)
    return content, author.sign(label("board-event") + content)


# The examples


def check_json(examples):
    for form in examples["accepted"]:
        require(canonical(parse(form["raw"].encode())).decode() == form["form"], form["raw"])
    for raw in examples["refused"]:
        try:
            parse(raw.encode())
        except Refused:
            continue
        raise AssertionError(raw)


def check_file(payload):
    c = parse(payload.encode())["parts"][0]
    whole = bytes(32768) + unb64(c["data"])
    require(c["index"] == 1 and c["count"] == 2 and c["size_bytes"] == len(whole), "chunk")
    require(hashlib.sha256(whole).digest() == unb64(c["sha256"]) and len(unb64url(c["file_id"])) == 16, "checksum")


def main():
    raw = FILE.read_bytes()
    x = json.loads(raw)
    room, direct = x["room"], x["direct_room"]
    alice, robot = Device(x["devices"]["alice"]), Device(x["devices"]["robot"])
    opened, made, ts = {}, {}, 1790000000000
    check_json(x["canonical"])
    check_file(x["content"]["chunk"])

    def nonce(e):
        return bytes.fromhex(e["nonce"])

    for name, e, parts in (
        ("pairwise", x["pairwise"]["message"], dict(id="p-1", kind="message", seq=1, enc="pairwise")),
        ("distribution", x["sender_key"]["distribution"], dict(id="k-1", kind="senderkey", seq=2)),
    ):
        opened[name] = open_pairwise(e["envelope"].encode(), alice, robot, room)
        key = direction(alice, robot, room, alice, robot)
        made[name] = make(alice, nonce(e), lambda aad: seal(key, nonce(e), e["plaintext"].encode(), aad), gen=0, ts=ts, session_id=room, to=robot.participant, **parts)

    chain, own = open_distribution(opened["distribution"]), bytes.fromhex(x["sender_key"]["chain_key"])
    kid = unb64url(x["sender_key"]["kid"])
    require(mac(own, label("sender-key-published") + kid).hex() == x["sender_key"]["published"], "published")
    keys = [mac(own, b"\x01"), mac(mac(own, b"\x02"), b"\x01")]
    for i, name, parts in ((1, "message", dict(id="m-1", seq=4)), (0, "notice", dict(id="n-1", seq=3, expires_at=ts + 600000))):
        e, front = x["sender_key"][name], struct.pack(">I", i)
        opened["sender_key " + name] = open_room_message(e["envelope"].encode(), alice, robot, room, chain)
        made["sender_key " + name] = make(
            alice, nonce(e), lambda aad: front + seal(keys[i], nonce(e), e["plaintext"].encode(), front + aad),
            session_id=room, to=room, kind=name, kid=b64url(kid), gen=1, ts=ts, **parts)

    d = x["direct"]
    ids = [d[p]["id"] for p in ("signed_prekey", "one_time_prekey")]
    private = [bytes.fromhex(d[p]["private"]) for p in ("signed_prekey", "one_time_prekey")]
    signed, one_time = map(sodium.crypto_scalarmult_base, private)
    nacl.signing.VerifyKey(robot.identity).verify(
        label("signed-prekey") + struct.pack(">I", ids[0]) + signed, bytes.fromhex(d["signed_prekey"]["signature"]))
    first = read(d["first"]["message"]["envelope"].encode(), alice, robot, direct)
    agents = accept(first, alice, robot, direct, {ids[0]: private[0]}, {ids[1]: private[1]})
    opened["direct first"] = agents.open(first)
    ephemeral = bytes.fromhex(d["ephemeral"]["private"])
    start = sodium.crypto_scalarmult_base(ephemeral) + struct.pack(">IIQ", *ids, d["started"])
    dhs = [dh(alice.private, signed), dh(ephemeral, robot.agreement), dh(ephemeral, signed), dh(ephemeral, one_time)]
    owners = Session(x3dh(dhs), associated(alice, robot, start, direct), None)
    for name, e, session, sender, part, peer in (
        ("direct first", d["first"], owners, alice, alice.identity + start, signed),
        ("direct answer", d["answer"], agents, robot, b"", None),
    ):
        m = e["message"]
        hdr, ct = session.make(nonce(m), m["plaintext"].encode(), part, bytes.fromhex(e["ratchet"]["private"]), peer or session.peer)
        made[name] = make(sender, nonce(m), lambda _: ct, session_id=direct, to=direct, id="d-1", kind="message", gen=2, seq=1, ts=ts, hdr=b64(hdr))
    opened["direct answer"] = owners.open(read(d["answer"]["message"]["envelope"].encode(), robot, alice, direct))

    b = x["board"]
    opened["board"] = open_event(bytes.fromhex(b["content"]), bytes.fromhex(b["signature"]), room, b["card"], alice, robot)
    content, signature = make_event(alice, [robot], room, 2, b["card"], b["event"], bytes.fromhex(b["key"]), nonce(b), b["text"].encode())
    require(signature.hex() == b["signature"], "another signature of the event")
    made["board"] = b64(content)

    print(json.dumps({
        "about": "What read.py opened of examples.json, and made anew from its private keys.",
        "examples": hashlib.sha256(raw).hexdigest(),
        "opened": {name: text.decode() for name, text in opened.items()}, "made": made,
    }, indent=1))


main()
