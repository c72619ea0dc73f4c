"""Differences that are known and stay, each with its reason. What is listed is counted and not reported."""

from collections.abc import Callable
from dataclasses import dataclass

from differential.compare import Difference, code
from differential.exchange import Answer
from differential.octets import STREAMING, Draft

Matcher = Callable[[Draft, Answer, Answer, Difference], bool]


@dataclass(frozen=True)
class Entry:
    """`stores` is empty for all."""

    name: str
    reason: str
    matches: Matcher
    stores: tuple[str, ...] = ()


def own(answer: Answer) -> bool:
    """Whether the gateway answered by itself."""
    identity = answer.get("x-batchgate-request-id")
    return identity is not None and identity == answer.get("x-amz-request-id")


def _refused(answer: Answer) -> bool:
    return answer.status >= 400


def _same_refusal(_draft: Draft, direct: Answer, through: Answer, difference: Difference) -> bool:
    same_code = code(direct) == code(through) or not (direct.body and through.body)
    return own(through) and direct.status == through.status and same_code and difference.aspect != "status"


def _wrong_body(draft: Draft, direct: Answer, through: Answer, _difference: Difference) -> bool:
    return draft.fault in BODY_FAULTS and own(through) and _refused(direct) and _refused(through)


def _wrong_body_taken(draft: Draft, direct: Answer, through: Answer, _difference: Difference) -> bool:
    return draft.fault in BODY_FAULTS and own(through) and not _refused(direct) and _refused(through)


def _chunks(draft: Draft, direct: Answer, through: Answer, _difference: Difference) -> bool:
    return draft.signing in STREAMING and _refused(direct) and not own(through)


def _encoding(_draft: Draft, direct: Answer, through: Answer, difference: Difference) -> bool:
    return difference.aspect == "header content-encoding" and "aws-chunked" in (direct.get("content-encoding") or "")


def _signature(_draft: Draft, direct: Answer, through: Answer, _difference: Difference) -> bool:
    return own(through) and code(through) == "BadGateway" and b"own credentials" in through.body


BODY_FAULTS = {"sha256", "checksum", "chunk:1", "chunk:2", "trailer"}
ENTRIES = [
    Entry("own-words", "a refusal of the gateway's own has the store's status and code, in its own words and without the store's ids", _same_refusal),
    Entry("order-of-refusals", "a body that is not what was signed is refused here; the store may have refused for another reason first", _wrong_body),
    Entry("body-verified", "a body that is not what was signed is refused here, also where the store would take it", _wrong_body_taken),
    Entry("chunks-decoded", "the gateway decodes chunked uploads, also where the store does not know the form", _chunks),
    Entry("aws-chunked", "`aws-chunked` is a coding of the transfer and is not kept with the object", _encoding),
    Entry("store-signature", "TODO", _signature),
]


def entry(store: str, draft: Draft, direct: Answer, through: Answer, difference: Difference) -> Entry | None:
    """The entry that a difference falls under."""
    for one in ENTRIES:
        if (not one.stores or store in one.stores) and one.matches(draft, direct, through, difference):
            return one
    return None
