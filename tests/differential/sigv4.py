"""Signature Version 4, by hand: what is signed is read as S3 reads it (decoded once, encoded anew, sorted), and nothing of
it is changed on the way. Headers are latin-1 text, one character for each octet."""

import hashlib
import hmac
import re
import urllib.parse
from datetime import datetime

from support.store import Target

EXPIRES_SECONDS = 300
Headers = list[tuple[str, str]]
_SIGNED_PLAINLY = ("host", "content-md5", "content-type", "range")


class Signer:
    """Whose signature it is, and of when."""

    def __init__(self, target: Target, now: datetime) -> None:
        self.stamp = now.strftime("%Y%m%dT%H%M%SZ")
        self.scope = f"{self.stamp[:8]}/{target.region}/s3/aws4_request"
        self.credential = f"{target.credentials.access_key}/{self.scope}"
        self._key = f"AWS4{target.credentials.secret_key}".encode()
        for step in self.scope.split("/"):
            self._key = hmac.new(self._key, step.encode(), hashlib.sha256).digest()

    def sign(self, text: str) -> str:
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()

    def authorization(self, method: str, path: str, query: str, headers: Headers, payload: str) -> tuple[Headers, str]:
        """The headers that make a request a signed one, and the signature."""
        added = [("x-amz-date", self.stamp), ("x-amz-content-sha256", payload)]
        names = _signed_names([*headers, *added])
        signature = self._signature(method, path, query, [*headers, *added], names, payload)
        value = f"AWS4-HMAC-SHA256 Credential={self.credential}, SignedHeaders={';'.join(names)}, Signature={signature}"
        return [*added, ("Authorization", value)], signature

    def presigned(self, method: str, path: str, query: str, headers: Headers, expires: int) -> str:
        """The query with the signature in it."""
        names = _signed_names(headers)
        query += ("&" if query else "") + (
            f"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={urllib.parse.quote(self.credential, safe='')}"
            f"&X-Amz-Date={self.stamp}&X-Amz-Expires={expires}"
            f"&X-Amz-SignedHeaders={urllib.parse.quote(';'.join(names), safe='')}"
        )
        return f"{query}&X-Amz-Signature={self._signature(method, path, query, headers, names, 'UNSIGNED-PAYLOAD')}"

    def _signature(self, method: str, path: str, query: str, headers: Headers, names: list[str], payload: str) -> str:
        lines = [method, _path(path), _query(query), *(f"{name}:{_value(name, headers)}" for name in names)]
        canonical = "\n".join([*lines, "", ";".join(names), payload])
        hashed = hashlib.sha256(canonical.encode("latin-1")).hexdigest()
        return self.sign(f"AWS4-HMAC-SHA256\n{self.stamp}\n{self.scope}\n{hashed}")


def _value(name: str, headers: Headers) -> str:
    """A header's values as they are signed."""
    return ",".join(re.sub("[ \t]+", " ", v.strip(" \t")) for n, v in headers if n.lower() == name)


def _signed_names(headers: Headers) -> list[str]:
    names = {name.lower() for name, _ in headers}
    # As the SDKs do: what a proxy may change stays out of it.
    return sorted(name for name in names if name.startswith("x-amz-") or name in _SIGNED_PLAINLY)


def _path(raw: str) -> str:
    return urllib.parse.quote(urllib.parse.unquote_to_bytes(raw.encode("latin-1")), safe="/-_.~")


def _query(raw: str) -> str:
    def recode(text: str) -> str:
        plain = text.replace("+", " ").encode("latin-1")
        return urllib.parse.quote(urllib.parse.unquote_to_bytes(plain), safe="-_.~")

    pairs = [piece.partition("=") for piece in raw.split("&") if piece]
    return "&".join(f"{name}={value}" for name, value in sorted((recode(n), recode(v)) for n, _, v in pairs))
