"""Ed25519 signatures of artifacts: making keys and signing.  The loader verifies (`trusted_keys=`, `public_key`).

A signature covers the manifest, which has the sha256 of every other member, so it covers the whole file.
"""
from __future__ import annotations

import json
import os
import zipfile
from typing import Any

import aot_runtime
from aot import artifact
from aot.errors import AotError
from aot.files import replacing, write_text


def new_key(path: str) -> str:
    """Write a private key (PEM, readable by its owner only) to path and its public key to path.pub; returns the latter.

    Raises AotError where one of the files exists already."""
    key_class, serialization = _cryptography()
    public = path + ".pub"
    for file in (path, public):
        if os.path.exists(file):
            raise AotError(f"{file}: exists already", hint="a key that was lost cannot be made again; choose another name")
    key = key_class.generate()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as f:
            f.write(pem)
    except OSError as e:
        raise AotError(f"{path}: cannot be written: {e.strerror or e}") from None
    write_text(public, key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode())
    return public


def sign(path: str | os.PathLike, key: str | os.PathLike, output: str | os.PathLike | None = None) -> str:
    """Sign an artifact in place, or into another file; returns the public key in hex.

    key: a PEM file with an Ed25519 private key without a password.  Signatures of other keys are kept.
    Raises AotError, and ArtifactError for an artifact that is damaged: nothing is signed that was not checked."""
    private = _private_key(os.fspath(key))
    loaded = aot_runtime.load(path)
    loaded.verify()
    public = private.public_key().public_bytes_raw().hex()
    manifest = bytes(loaded.member("manifest.json"))
    kept = [(k, s) for k, s in loaded.signatures() if k != public]
    signatures = [*kept, (public, private.sign(aot_runtime.SIGNED + manifest))]
    with replacing(os.fspath(output or path)) as f, zipfile.ZipFile(f, "w") as z:
        for name in loaded.manifest["members"]:
            artifact.add_member(z, name, [loaded.member(name)])
        artifact.add_member(z, "manifest.json", [manifest])
        artifact.add_member(z, "signatures.json", [_text(signatures)])
    return public


def _text(signatures: list[tuple[str, bytes]]) -> bytes:
    return json.dumps({"signatures": [{"key": k, "signature": s.hex()} for k, s in signatures]}, indent=1).encode()


def _cryptography() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError:
        raise AotError("signatures need the package `cryptography`", hint='pip install "aotc[sign]"') from None
    return Ed25519PrivateKey, serialization


def _private_key(path: str) -> Any:
    key_class, serialization = _cryptography()
    try:
        with open(path, "rb") as f:
            key = serialization.load_pem_private_key(f.read(), None)
    except OSError as e:
        raise AotError(f"{path}: cannot be read: {e.strerror or e}", hint="`aot sign --new-key FILE` makes a key") from None
    except (ValueError, TypeError):
        raise AotError(f"{path}: is not a private key without a password",
                       hint="remove its password first: openssl pkey -in FILE -out PLAIN") from None
    if not isinstance(key, key_class):
        raise AotError(f"{path}: is not an Ed25519 key", hint="`aot sign --new-key FILE` makes one")
    return key
