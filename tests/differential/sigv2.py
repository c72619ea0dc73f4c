"""Signature Version 2, by hand, as its last clients wrote it: the bucket, the path as it is sent, the parameters that are
signed, and the headers that are."""

import base64
import hashlib
import hmac
import urllib.parse
from datetime import datetime

from support.store import Target

from differential.sigv4 import Headers

# What is signed by clients and stores alike; what else is in a query is covered by nothing, but may shape a listing.
_SIGNED = frozenset(
    """accelerate acl analytics cors defaultObjectAcl delete inventory lifecycle location logging metrics notification
    object-lock partNumber policy replication requestPayment response-cache-control response-content-disposition
    response-content-encoding response-content-language response-content-type response-expires restore select select-type
    storageClass tagging torrent uploadId uploads versionId versioning versions website""".split()
)


_UNSIGNED = frozenset(
    """continuation-token delimiter encoding-type fetch-owner key-marker list-type marker max-buckets max-keys max-parts
    max-uploads part-number-marker prefix start-after upload-id-marker version-id-marker x-id""".split()
)


def covers(query: str) -> bool:
    """Whether a request with this query can be signed so that nothing can be added to it."""
    return all(piece.partition("=")[0] in _SIGNED | _UNSIGNED for piece in query.split("&") if piece)


def authorization(target: Target, now: datetime, method: str, resource: str, query: str, headers: Headers) -> Headers:
    """The headers that make a request a signed one. `resource` is the path as it is in path style."""
    date = now.strftime("%a, %d %b %Y %H:%M:%S GMT")
    signature = sign(target, _text(method, date, resource, query, headers))
    return [("Date", date), ("Authorization", f"AWS {target.credentials.access_key}:{signature}")]


def presigned(target: Target, until: int, method: str, resource: str, query: str, headers: Headers) -> str:
    """The query with the signature in it."""
    signature = urllib.parse.quote(sign(target, _text(method, str(until), resource, query, headers)), safe="")
    added = f"AWSAccessKeyId={target.credentials.access_key}&Expires={until}&Signature={signature}"
    return f"{query}&{added}" if query else added


def sign(target: Target, text: str) -> str:
    key = target.credentials.secret_key.encode()
    return base64.b64encode(hmac.new(key, text.encode("latin-1"), hashlib.sha1).digest()).decode()


def _text(method: str, date: str, resource: str, query: str, headers: Headers) -> str:
    def value(name: str) -> str:
        return ",".join(v.strip(" \t") for n, v in headers if n.lower() == name)

    names = sorted({name.lower() for name, _ in headers if name.lower().startswith("x-amz-")})
    amz = "".join(f"{name}:{value(name)}\n" for name in names)
    signed = sorted(piece for piece in query.split("&") if piece.partition("=")[0] in _SIGNED)
    pieces = [urllib.parse.unquote(piece.replace("+", " "), "latin-1") for piece in signed]
    whole = resource + ("?" + "&".join(pieces) if pieces else "")
    return "\n".join([method, value("content-md5"), value("content-type"), date, amz + whole])
