"""Twin buckets with one history: what is written goes to the first straight and to the second through the gateway. What
is read is asked of the second both ways, and must be the same to the octet. At the end the store tells what it holds of
both."""

import collections
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from support.store import Target

from differential import http2, listed
from differential.compare import Difference, Heard, Names, differences
from differential.exchange import Answer, Connection
from differential.octets import Draft, Octets, write
from differential.plans import Plan
from differential.tally import Tally

_PLACEHOLDER = re.compile(r"\{(bucket|missing|owner|upload|version|etag|part|token)(?::(\d+))?\}")


SLOW_SECONDS = 4


class Gone(Exception):
    """The store or the gateway does not listen any more; says what was asked last."""


@dataclass
class Side:
    """One bucket, how it is spoken to, and what was learnt of it."""

    bucket: str
    owner: str
    names: Names
    uploads: list[str] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    etags: list[str] = field(default_factory=list)
    parts: dict[int, str] = field(default_factory=dict)
    tokens: list[str] = field(default_factory=list)
    # A write was done on one side only, as listed: from here on the twins are none.
    diverged: bool = False

    def fill(self, draft: Draft) -> Draft:
        """The draft with what this side calls things: the newest is number 0."""

        def known(match: re.Match[str]) -> str:
            what, number = match[1], int(match[2] or 0)
            if what == "bucket":
                return self.bucket
            if what == "owner":
                return self.owner
            if what == "missing":
                return "no-such-" + self.bucket[8:]
            if what == "part":
                return self.parts.get(number, "none")
            values = {"upload": self.uploads, "version": self.versions, "etag": self.etags, "token": self.tokens}[what]
            return values[-1 - number] if number < len(values) else "none"

        def text(value: str) -> str:
            return _PLACEHOLDER.sub(known, value)

        form = draft.form
        if form is not None:
            form = replace(form, fields=tuple((name, text(value)) for name, value in form.fields))
        return replace(
            draft,
            form=form,
            path=text(draft.path),
            query=text(draft.query),
            headers=tuple((name, text(value)) for name, value in draft.headers),
            body=text(draft.body.decode("latin-1")).encode("latin-1"),
        )

    def learn(self, draft: Draft, answer: Answer, own: bool) -> None:
        # What one side alone is asked names nothing there: both name in the order of what both were told.
        if own:
            self.names.learn(answer)
        if found := re.search(rb"<NextContinuationToken>([^<]+)<", answer.body):
            self.tokens.append(found[1].decode())
        # Reads are asked of one side only; both must know the same.
        if draft.reads:
            return
        if version := answer.get("x-amz-version-id"):
            self.versions.append(version)
        if (found := re.search(rb"<UploadId>([^<]+)</UploadId>", answer.body)) and draft.kind == "create-upload":
            self.uploads.append(found[1].decode())
        etag = answer.get("etag") or ""
        if found := re.search(rb"<ETag>(?:&quot;|&#34;|\")?([^<&\"]+)", answer.body):
            etag = etag or found[1].decode()
        if etag and draft.kind in ("part", "part-copy"):
            number = re.search(r"partNumber=(\d+)", draft.query)
            self.parts[int(number[1]) if number else 0] = etag
        elif etag:
            self.etags.append(etag.strip('"'))


@dataclass
class Step:
    """What was asked and answered, for whoever reads a failure."""

    draft: Draft
    requests: tuple[Octets, Octets]
    answers: tuple[Answer, Answer]
    found: list[Difference]


class Twins:
    """A store and a gateway before it. `run` makes new buckets for each plan."""

    def __init__(self, store: str, direct: Target, through: Target) -> None:
        self.store = store
        self._direct = Connection(direct)
        self._through = Connection(through)
        self._count = 0
        self.gone: str | None = None
        self._last: collections.deque[str] = collections.deque(maxlen=6)
        self._owner = self._asked_for_owner()
        self.kinds: dict[str, int] = {}
        self.tally = Tally()
        self.listed: dict[str, int] = {}

    def run(self, plan: Plan) -> Iterator[Step]:
        """Each step that found what is not listed."""
        self._count += 1
        first, second = (
            Side(bucket, self._owner, Names(bucket))
            for bucket in (f"twin-one-{self._count:06}", f"twin-two-{self._count:06}")
        )
        for side in (first, second):
            made = self._ask(self._direct, side, Draft("make", "PUT", "/{bucket}"))
            assert made.status == 200, f"{self.store} made no bucket: {made}"
        try:
            for draft in [*plan, *AUDIT]:
                if exclusion := listed.excluded(self.store, draft):
                    self.listed[exclusion.name] = self.listed.get(exclusion.name, 0) + 1
                    continue
                yield from self._step(draft, first, second)
                if first.diverged:
                    return
            yield from self._audit(first, second)
        finally:
            for side in (first, second):
                self._empty(side)

    def _ask(self, connection: Connection, side: Side, draft: Draft) -> Answer:
        return self._sent(connection, write(side.fill(draft), connection.target))

    def _asked_for_owner(self) -> str:
        """The id of the account that both sides are, as the store writes it."""
        listing = self._direct.send(write(Draft("owner", "GET", "/"), self._direct.target))
        found = re.search(rb"<ID>([^<]*)</ID>", listing.body)
        return found[1].decode() if found else ""

    def _sent(self, connection: Connection, request: Octets, over_http2: bool = False) -> Answer:
        if self.gone is None:
            self._last.append(f"{connection.target.endpoint} {request.head.splitlines()[0]!r} {request.body[:400]!r}")
            try:
                return http2.exchange(connection.target, request) if over_http2 else connection.send(request)
            except ConnectionRefusedError:
                self.gone = "\n  ".join(self._last)
        raise Gone(self.gone)

    def _step(self, draft: Draft, first: Side, second: Side) -> Iterator[Step]:
        """Reads are asked of the second twin both ways."""
        sides = (second if draft.reads else first, second)
        yield from self._compared(draft, sides, (self._direct, self._through), own=not draft.reads)

    def _compared(
        self, draft: Draft, sides: tuple[Side, Side], ways: tuple[Connection, Connection], own: bool
    ) -> Iterator[Step]:
        self.kinds[draft.kind] = self.kinds.get(draft.kind, 0) + 1
        requests, heard = [], []
        for side, way in zip(sides, ways, strict=True):
            requests.append(write(side.fill(draft), way.target))
            begun = time.monotonic()
            answer = self._sent(way, requests[-1], draft.http2 and way is self._through)
            took = time.monotonic() - begun
            if took > SLOW_SECONDS:
                print(
                    f"  slow, {took:.1f} s: {way.target.endpoint} {requests[-1].head[:200]!r} <- {answer.status}",
                    flush=True,
                )
            heard.append(Heard(answer, way.target.endpoint.removeprefix("http://"), side.names, own, draft.style))
        for side, one in zip(sides if own else sides[:1], heard, strict=False):
            side.learn(draft, one.answer, own)
        answers = (heard[0].answer, heard[1].answer)
        self.tally.add(draft, answers[0].status)
        found = self._unlisted(draft, answers, differences(heard[0], heard[1]))
        sides[0].diverged |= not draft.reads and (answers[0].status < 400) != (answers[1].status < 400)
        if found:
            yield Step(draft, (requests[0], requests[1]), answers, found)

    def _unlisted(self, draft: Draft, answers: tuple[Answer, Answer], found: list[Difference]) -> list[Difference]:
        left, names = [], set()
        for difference in found:
            entry = listed.entry(self.store, draft, *answers, difference)
            if entry is None:
                left.append(difference)
            else:
                names.add(entry.name)
        for name in names:
            self.listed[name] = self.listed.get(name, 0) + 1
        return left

    def _audit(self, first: Side, second: Side) -> Iterator[Step]:
        """What the store says of each of the twins, straight."""
        drafts = [
            Draft("audit", "GET", "/{bucket}", query) for query in ("versions&max-keys=100", "uploads", "list-type=2")
        ]
        listing = self._ask(self._direct, first, drafts[2])
        for key in re.findall(rb"<Key>([^<]*)</Key>", listing.body)[:4]:
            path = "/{bucket}/" + odd_path(key).replace(first.bucket, "{bucket}")
            drafts += [Draft("audit", "GET", path), Draft("audit", "GET", path, "tagging")]
        for draft in drafts:
            yield from self._compared(draft, (first, second), (self._direct, self._direct), own=True)

    def _empty(self, side: Side) -> None:
        """Best effort: what a store cannot get rid of stays until it is thrown away."""
        self._ask(self._direct, side, Draft("tidy", "DELETE", "/{bucket}", "policy"))
        past = (("x-amz-bypass-governance-retention", "true"),)
        for query, kind in (("uploads", "Upload"), ("versions", "Version|DeleteMarker"), ("", "Contents")):
            body = self._ask(self._direct, side, Draft("tidy", "GET", "/{bucket}", query + "&encoding-type=url")).body
            for entry in re.findall(rb"<(?:%s)>(.*?)</(?:%s)>" % (kind.encode(), kind.encode()), body, re.DOTALL):
                key = re.search(rb"<Key>([^<]*)</Key>", entry)
                what = re.search(rb"<(UploadId|VersionId)>([^<]*)</", entry)
                if key:
                    query = (
                        f"{'uploadId' if what[1] == b'UploadId' else 'versionId'}={what[2].decode()}" if what else ""
                    )
                    path = "/{bucket}/" + key[1].decode("latin-1").replace("+", "%20")
                    self._ask(self._direct, side, Draft("tidy", "DELETE", path, query, past))
        self._ask(self._direct, side, Draft("tidy", "DELETE", "/{bucket}"))


AUDIT = [Draft("list-versions", "GET", "/{bucket}", "versions"), Draft("list-uploads", "GET", "/{bucket}", "uploads")]


def odd_path(key: bytes) -> str:
    """A key out of a document, as a path."""
    for entity, octets in ((b"&lt;", b"<"), (b"&gt;", b">"), (b"&quot;", b'"'), (b"&apos;", b"'"), (b"&amp;", b"&")):
        key = key.replace(entity, octets)
    key = re.sub(rb"&#(x?)([0-9A-Fa-f]+);", lambda m: chr(int(m[2], 16 if m[1] else 10)).encode(), key)
    return "".join(chr(b) if (chr(b).isalnum() and b < 128) or b in b"-._~/" else f"%{b:02X}" for b in key)
