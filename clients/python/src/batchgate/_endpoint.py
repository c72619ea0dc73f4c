"""Where an endpoint is: its URL as it was given in, the same without slashes at its end out, or what is wrong with it.

Invariant: behind the host there is at most a path that can be written in one way only, so what is signed is what is sent.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from ._errors import ConfigurationError

# A name or an address, with at most a port. What else a parser takes, it cleans, or whoever dials reads it another way.
_AUTHORITY = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?\])(?::[0-9]+)?")

# The gateway's own rule for its `server.base_path`.
_PATH = re.compile(r"(?:/(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._~-]+)*")


def endpoint_of(url: str) -> str:
    """The URL of an endpoint, such as `http://127.0.0.1:9000` or `https://host/s3`. What looks like a password is not
    repeated."""
    if "@" in url:
        raise ConfigurationError(
            "endpoint_url holds no user and no password: give aws_access_key_id and aws_secret_access_key, or a profile"
        )
    # The parser would leave some of these out without a word.
    if re.search(r"[^!-~]", url):
        raise ConfigurationError(f"endpoint_url {url!r} is no URL: it has a blank, or what is not ASCII, in it")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigurationError(f"endpoint_url {url!r} is no URL: {error}") from error
    if parts.scheme not in ("http", "https"):
        raise ConfigurationError(f"endpoint_url begins with http:// or https://, not {url!r}")
    if not _AUTHORITY.fullmatch(parts.netloc) or port == 0:
        raise ConfigurationError(f"endpoint_url {url!r}: the host or the port is wrong")
    if "?" in url or "#" in url:
        raise ConfigurationError(
            f"endpoint_url ends with its path, without a query and without a fragment, not {url!r}"
        )
    path = parts.path.rstrip("/")
    if not _PATH.fullmatch(path):
        raise ConfigurationError(
            f"endpoint_url has a path such as /s3, of letters, digits, '-', '.', '_' and '~', or none, not {url!r}"
        )
    return f"{parts.scheme}://{parts.netloc}{path}"
