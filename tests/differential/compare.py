"""Two answers, as far as they must be the same. What a store makes up by itself gets a name by the order in which it was
seen; what the gateway must say differently is left out, and is written down here."""

import html
import re
import urllib.parse
from dataclasses import dataclass

from support.gateway import DOMAIN

from differential.exchange import Answer
from differential.octets import PATH

# Headers that differ, and why.
HEADERS = {
    "date": "each answer has its own",
    "x-amz-request-id": "each request has its own; presence is compared",
    "x-amz-id-2": "each request has its own; presence is compared",
    "x-batchgate-request-id": "the gateway's own id",
    "connection": "of one connection only",
    "keep-alive": "of one connection only",
    "transfer-encoding": "of one connection only; the body is compared",
}
# What SeaweedFS says of objects for itself: the account that owns them, which is the gateway's, among it.
_OF_SEAWEEDFS = "seaweed-x-amz-"
_PRESENCE_ONLY = {"x-amz-request-id", "x-amz-id-2"}
_OPAQUE = re.compile(
    rb"<(UploadId|VersionId|DeleteMarkerVersionId|NextVersionIdMarker|NextUploadIdMarker|UploadIdMarker|VersionIdMarker"
    rb"|NextContinuationToken|CopySourceVersionId)>([^<]+)</"
)
_IDS = re.compile(rb"<(RequestId|HostId)>[^<]*</|\"(RequestId|HostId)\":\"[^\"]*\"")
_UPLOADS = re.compile(rb"(?:<Upload>.*?</Upload>)+", re.DOTALL)
_TAGS = re.compile(rb"(?<=<TagSet>).*?(?=</TagSet>)", re.S)
_NEXT_UPLOAD = re.compile(rb"<NextUploadIdMarker>[^<]*</NextUploadIdMarker>")
_ISO_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")
_HTTP_TIME = re.compile(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT")
# Where an object is: at the bucket's own host (SeaweedFS names the bucket there again), at the host of all, or at the
# address, and spelled as the store likes.
_DOMAIN = re.escape(DOMAIN.encode())
_PLACES = re.compile(
    rb"(?:https?://)?(?:\{bucket\}\.%s(?:/\{bucket\})?|(?:%s|\{address\})/\{bucket\})/(?P<key>[^<]*)" % (_DOMAIN, _DOMAIN)
)
_OPAQUE_HEADERS = ("x-amz-version-id", "x-amz-copy-source-version-id", "x-amz-abort-rule-id")


class Names:
    """What one side calls what the store made up."""

    def __init__(self, bucket: str) -> None:
        self._bucket = bucket.encode()
        self._known: dict[bytes, bytes] = {}

    def learn(self, answer: Answer) -> None:
        found = [v.encode("latin-1") for name in _OPAQUE_HEADERS if (v := answer.get(name))]
        found += [match[2] for match in _OPAQUE.finditer(answer.body)]
        for value in found:
            if value not in (b"null", b"none") and len(value) > 6:
                self._known.setdefault(value, b"{id-%d}" % len(self._known))

    def without_bucket(self, text: bytes) -> bytes:
        """An error's `Resource` as it is in virtual-host style, without the bucket: the gateway asks in path style."""
        return re.sub(rb"<Resource>/%s(?:/|(?=<))" % self._bucket, b"<Resource>/", text)

    def masked(self, text: bytes, address: str, own: bool) -> bytes:
        """`text` without the address that was asked and, with `own`, without what is this side's only: the bucket, what the
        store made up, and moments."""
        text = text.replace(address.encode(), b"{address}")
        if not own:
            return text
        for value, name in self._known.items():
            text = text.replace(value, name)
        text = _ISO_TIME.sub(b"{time}", text.replace(self._bucket, b"{bucket}"))
        return _PLACES.sub(lambda found: b"{place}/" + _decoded(found["key"]), text)


def _decoded(key: bytes) -> bytes:
    """A key in a place, whether it was written for a document or for an address."""
    return urllib.parse.unquote_to_bytes(html.unescape(key.decode("latin-1")).encode("latin-1", "replace"))


@dataclass(frozen=True)
class Heard:
    """An answer, who was asked, and the names there. With `own`, each side has its own names and moments."""

    answer: Answer
    address: str
    names: Names
    own: bool
    style: str = PATH

    def masked(self, text: bytes) -> bytes:
        return self.names.masked(text, self.address, self.own)


@dataclass(frozen=True)
class Difference:
    """`aspect` is `status`, `header NAME`, `body` or `ending`."""

    aspect: str
    direct: str
    through: str

    def __str__(self) -> str:
        return f"{self.aspect}:\n    direct  {self.direct[:1000]!r}\n    through {self.through[:1000]!r}"


def differences(direct: Heard, through: Heard) -> list[Difference]:
    """What differs."""
    out = []
    if direct.answer.status != through.answer.status:
        out.append(Difference("status", _told(direct.answer), _told(through.answer)))
    left, right = _headers(direct), _headers(through)
    for name in sorted(left.keys() | right.keys()):
        if left.get(name) != right.get(name):
            out.append(Difference(f"header {name}", str(left.get(name)), str(right.get(name))))
    bodies = [_body(direct), _body(through)]
    if bodies[0] != bodies[1]:
        # From a little before where they part.
        parted = next((i for i, (a, b) in enumerate(zip(*bodies, strict=False)) if a != b), min(map(len, bodies)))
        windows = [body[max(0, parted - 300) :].decode("latin-1") for body in bodies]
        out.append(Difference("body", windows[0], windows[1]))
    if direct.answer.broken != through.answer.broken:
        out.append(Difference("ending", direct.answer.broken, through.answer.broken))
    return out


def _body(heard: Heard) -> bytes:
    body = heard.answer.body if heard.style == PATH else heard.names.without_bucket(heard.answer.body)
    body = heard.masked(_IDS.sub(b"{id}", body))
    # Some stores keep tags without an order.
    body = _TAGS.sub(lambda found: b"".join(sorted(found[0].split(b"</Tag>"))), body)
    # Uploads of one key come in the order of their ids, which are random.
    if not heard.own:
        return body
    body = _NEXT_UPLOAD.sub(b"", body)
    return _UPLOADS.sub(
        lambda found: b"".join(sorted(re.sub(rb"\{id-\d+\}", b"{id}", found[0]).split(b"</Upload>"))), body
    )


def code(answer: Answer) -> str:
    """Of an error document; empty if it is none."""
    found = re.search(rb"<Code>([^<]*)</Code>", answer.body)
    return found[1].decode("latin-1") if found else ""


def _told(answer: Answer) -> str:
    return f"{answer.status} {code(answer)}".strip()


def _headers(heard: Heard) -> dict[str, list[str]]:
    answer = heard.answer
    out: dict[str, list[str]] = {}
    document = answer.body.startswith((b"<", b"{"))
    for name, value in answer.headers:
        name = name.lower()
        if name.startswith(_OF_SEAWEEDFS) or (name in HEADERS and name not in _PRESENCE_ONLY):
            continue
        # The lengths of documents with ids and addresses differ with them; the documents are compared.
        if name in _PRESENCE_ONLY or (name == "content-length" and document):
            value = "{there}"
        else:
            value = heard.masked(value.encode("latin-1")).decode("latin-1")
            value = _HTTP_TIME.sub("{time}", value) if heard.own else value
        out.setdefault(name, []).append(value)
    if "content-length" not in out and answer.body:
        # Sent in chunks: the same, if the octets are.
        out["content-length"] = ["{there}" if document else str(len(answer.body))]
    return out
