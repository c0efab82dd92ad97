#!/usr/bin/python3
"""Makes argon2.json with the reference implementation of Argon2 (libargon2, by the authors of
RFC 9106), through Debian's python3-argon2. It first proves that library on the example of RFC
9106, section 5.3, which has a secret and associated data that our key stores do not use."""

import json
import pathlib

from argon2.low_level import Type, core, ffi, hash_secret_raw


def rfc9106():
    out = ffi.new("uint8_t[]", 32)
    held = {
        "pwd": ffi.new("uint8_t[]", b"\x01" * 32),
        "salt": ffi.new("uint8_t[]", b"\x02" * 16),
        "secret": ffi.new("uint8_t[]", b"\x03" * 8),
        "ad": ffi.new("uint8_t[]", b"\x04" * 12),
    }
    context = ffi.new("argon2_context *", dict(
        version=0x13, out=out, outlen=32, pwd=held["pwd"], pwdlen=32, salt=held["salt"], saltlen=16,
        secret=held["secret"], secretlen=8, ad=held["ad"], adlen=12, t_cost=3, m_cost=32, lanes=4,
        threads=4, allocate_cbk=ffi.NULL, free_cbk=ffi.NULL, flags=0))
    assert core(context, Type.ID.value) == 0
    assert bytes(ffi.buffer(out)).hex() == "0d640df58d78766c08c037a34a8b53c9d01ef0452d75b65eb52520e96b01e659"


rfc9106()
rows = []
for passphrase, salt, passes, memory, threads in [
    (b"correct horse battery staple", bytes(range(16)), 3, 65536, 4),
    (b"12345678", bytes(16), 2, 19456, 1),
    ("gr\u00fc\u00dfe aus der k\u00fcche".encode(), b"\xff" * 16, 4, 32768, 3),
    (b"\x00" * 1024, b"0123456789abcdef", 2, 20000, 16),
]:
    key = hash_secret_raw(passphrase, salt, passes, memory, threads, 32, Type.ID, version=0x13)
    rows.append(dict(passphrase=passphrase.hex(), salt=salt.hex(), passes=passes, memory_kib=memory,
                     threads=threads, key=key.hex()))
pathlib.Path(__file__).with_name("argon2.json").write_text(json.dumps(rows, indent=2) + "\n")
