"""A check that this user made a run on this machine: only then may its config name code to run."""

import hashlib
import hmac
import os
import secrets
from pathlib import Path
from typing import Optional

from elastictrainer.runs.files import write_text

_KEY = "elastictrainer/key"


def signature(content: bytes) -> str:
    """Sign `content` so that only this user of this machine can; empty where no key can be kept."""
    key = _key(make=True)
    return _signature(key, content) if key else ""


def is_own(content: bytes, signed: str) -> bool:
    """Return whether `signed` is this user's signature of `content`."""
    key = _key(make=False)
    return key is not None and hmac.compare_digest(_signature(key, content).encode(), signed.encode())


def _signature(key: bytes, content: bytes) -> str:
    return hmac.new(key, content, hashlib.sha256).hexdigest()


def _key(make: bool) -> Optional[bytes]:
    """Return the user's key, in a file that nobody else can read; None where there is none and none can be
    kept.
    """
    path = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / _KEY
    try:
        if make and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            before = os.umask(0o077)
            try:
                write_text(path, secrets.token_hex(32))
            finally:
                os.umask(before)
        return path.read_bytes()
    except OSError:
        return None
