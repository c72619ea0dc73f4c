"""What was asked, and how often a store took it: what a store always refuses tests little there."""

import collections
import re

from differential.digests import header
from differential.octets import HOST, NOBODY, PATH, SIGNER_FAULTS, STREAMING, Draft

_LISTINGS = ("list", "list-v2", "list-versions", "list-uploads", "list-parts")
_PLAIN_KEY = re.compile(r"/\{bucket\}/[a-z0-9/-]*")
_HEADERS = re.compile(
    r"range|(x-amz-copy-source-)?if-.*|x-amz-(copy-source-range|tagging|acl|storage-class|object-lock-mode|meta-.*|grant-read"
    r"|checksum-(type|algorithm)|server-side-encryption-customer-algorithm|metadata-directive|tagging-directive"
    r"|website-redirect-location|object-attributes)|content-(type|encoding|disposition|language)|cache-control|expires"
)


class Tally:
    """Counts by label: how often it was asked, and how often that was answered with 2xx straight."""

    def __init__(self) -> None:
        self.asked: collections.Counter[str] = collections.Counter()
        self.taken: collections.Counter[str] = collections.Counter()

    def add(self, draft: Draft, status: int) -> None:
        for label in set(_labels(draft)):
            self.asked[label] += 1
            self.taken[label] += 200 <= status < 300

    def told(self) -> str:
        """A line for each group of labels."""
        groups: dict[str, list[str]] = collections.defaultdict(list)
        for label in sorted(self.asked):
            group, _, name = label.partition(": ")
            groups[group].append(f"{name} {self.taken[label]}/{self.asked[label]}")
        lines = [f"    {group}: {', '.join(names)}" for group, names in groups.items()]
        never = [label for label in sorted(self.asked) if not self.taken[label] and not label.startswith("fault")]
        return "\n".join(["  taken/asked straight:", *lines, f"    never taken: {', '.join(never) or 'nothing'}"])


def _labels(draft: Draft) -> list[str]:
    wrong = draft.fault or "none"
    out = [f"kind: {draft.kind}", f"style: {draft.style}", f"fault: {'chunk' if wrong.startswith('chunk') else wrong}"]
    out += [f"http: {2 if draft.http2 else 1}", f"signing: {draft.signing}{', hoisted' if draft.hoisted else ''}"]
    if draft.style != PATH:
        out.append(f"signing in {HOST} style: {draft.signing}")
    if draft.kind in ("put", "part", "form"):
        out.append(f"body: {len(draft.body)} octets")
        where = "in the trailer" if draft.trailer else "in the head"
        out.append(f"checksum {where}: {header(draft.checksum) if draft.checksum else 'none'}, {draft.signing}")
    if draft.signing not in STREAMING and draft.fault in SIGNER_FAULTS:
        out.append(f"fault of the signer: {draft.fault}, {draft.signing}")
    if draft.path.startswith("/{bucket}/"):
        out.append(f"key: {_key(draft.path)}")
    out += [
        f"header: {'x-amz-meta-' if name.startswith('x-amz-meta') else name}"
        for name in _lower(draft)
        if _HEADERS.fullmatch(name)
    ]
    names = [piece.partition("=")[0] for piece in draft.query.split("&") if piece]
    if draft.kind in _LISTINGS:
        out += [f"parameter of {draft.kind}: {name}" for name in names]
    elif draft.kind.endswith("-resource"):
        out.append(f"{draft.kind}: {names[0] if names else ''} {draft.method}")
    else:
        out += [f"query: {name}" for name in names]
    if draft.kind == "form" and draft.form is not None:
        out += [f"form: {name}" for name, _ in draft.form.fields] + [f"form: policy by {draft.form.conditions}"]
    if draft.signing == NOBODY:
        out.append(f"unsigned: {draft.kind}")
    return out


def _lower(draft: Draft) -> list[str]:
    return [name.lower() for name, _ in draft.headers]


def _key(path: str) -> str:
    if path.endswith("/"):
        return "dir/"
    return "plain" if _PLAIN_KEY.fullmatch(path) else "odd"
