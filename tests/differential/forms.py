"""POST Object: what headers say elsewhere stands in the fields of a form, and a policy that the client signed lets them."""

import base64
import json
from dataclasses import dataclass
from datetime import datetime, timedelta

from support.store import Target

from differential import sigv2
from differential.sigv4 import Signer

BOUNDARY = "--------of-the-differential-tester"
_UNNAMED = ("x-amz-signature", "policy", "file", "awsaccesskeyid", "signature")


@dataclass(frozen=True)
class Form:
    """The fields before the file. `conditions` tells how the policy allows them: `exact`, `prefix`, or exactly and also how
    long the file may be: `length` (enough) and `short` (too little)."""

    fields: tuple[tuple[str, str], ...]
    conditions: str = "exact"
    file_name: str = "f.bin"
    behind: bool = False


def encoded(
    form: Form, bucket: str, data: bytes, target: Target, now: datetime, old: bool, fault: str
) -> tuple[str, bytes]:
    """Its type and its octets; `old` is signed by Version 2. `fault` is `policy` (a field that it does not allow), or
    what is wrong with whom the target names and with `now`."""
    signer = Signer(target, now)
    fields = list(form.fields)
    if not old:
        fields += [
            ("x-amz-algorithm", "AWS4-HMAC-SHA256"),
            ("x-amz-credential", signer.credential),
            ("x-amz-date", signer.stamp),
        ]
    policy = base64.b64encode(json.dumps(_policy(form, bucket, fields, now, fault)).encode()).decode()
    fields.append(("policy", policy))
    if old:
        fields += [("AWSAccessKeyId", target.credentials.access_key), ("signature", sigv2.sign(target, policy))]
    else:
        fields.append(("x-amz-signature", signer.sign(policy)))
    parts = [_part(f'name="{name}"', value.encode("latin-1")) for name, value in fields]
    parts.append(_part(f'name="file"; filename="{form.file_name}"', data, "Content-Type: text/x-of-the-file\r\n"))
    if form.behind:
        parts.append(_part('name="submit"', b"Upload"))
    return f"multipart/form-data; boundary={BOUNDARY}", b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def _policy(form: Form, bucket: str, fields: list[tuple[str, str]], now: datetime, fault: str) -> dict[str, object]:
    conditions: list[object] = [{"bucket": bucket}]
    for name, value in fields:
        text = value.encode("latin-1").decode("utf-8", "replace")
        if form.conditions == "prefix" and not name.startswith("x-amz-"):
            conditions.append(["starts-with", f"${name}", text[:1]])
        elif name.lower() not in _UNNAMED:
            conditions.append({name: text})
    if fault == "policy":
        del conditions[1]
    if form.conditions in ("length", "short"):
        conditions.append(["content-length-range", 0, 1 << 24 if form.conditions == "length" else 1])
    return {"expiration": (now + timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%S.000Z"), "conditions": conditions}


def _part(disposition: str, value: bytes, more: str = "") -> bytes:
    head = f"--{BOUNDARY}\r\nContent-Disposition: form-data; {disposition}\r\n{more}\r\n"
    return head.encode("latin-1") + value + b"\r\n"
