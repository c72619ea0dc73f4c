"""Differences that are known and stay, each with its reason. What is listed is counted and not reported."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from differential import sigv2
from differential.compare import Difference, code
from differential.exchange import Answer
from differential.octets import OF_VERSION_2, PRESIGNED, STREAMING, Draft, Pairs

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


def _with_a_fault(draft: Draft, direct: Answer, through: Answer, _difference: Difference) -> bool:
    return bool(draft.fault) and own(through) and _refused(direct) and _refused(through)


def _wrong_body_taken(draft: Draft, direct: Answer, through: Answer, _difference: Difference) -> bool:
    # An odd header may be a checksum that is another or none, which a gateway that verifies them looks at.
    odd = any(name.lower().startswith("x-amz-checksum-") for name, _ in draft.headers) and b"pecified" in through.body
    wrong = draft.fault in BODY_FAULTS or odd or b"Value for x-amz-checksum-" in through.body
    return wrong and own(through) and not _refused(direct) and _refused(through)


def _chunks(draft: Draft, direct: Answer, through: Answer, _difference: Difference) -> bool:
    return draft.signing in STREAMING and _refused(direct) and not own(through)


def _encoding(_draft: Draft, direct: Answer, through: Answer, difference: Difference) -> bool:
    return difference.aspect == "header content-encoding" and "aws-chunked" in (direct.get("content-encoding") or "")


def _store_cannot_verify(draft: Draft, direct: Answer, through: Answer, _difference: Difference) -> bool:
    ours = (
        own(through)
        and through.status == 502
        and (not through.body or b"the gateway's own credentials" in through.body)
    )
    # Version 2 signs so little of a query that the store knew nothing odd in it.
    anew = draft.signing in OF_VERSION_2 and own(through) and through.status == 403
    return (ours and _signature_refused(direct)) or (anew and (not through.body or b"signed it anew" in through.body))


def _signed_anew(_draft: Draft, direct: Answer, through: Answer, _difference: Difference) -> bool:
    return _signature_refused(direct) and not own(through)


def _signature_refused(answer: Answer) -> bool:
    return answer.status == 403 and (not answer.body or code(answer) == "SignatureDoesNotMatch")


def _presigned_repeated(draft: Draft, _direct: Answer, through: Answer, _difference: Difference) -> bool:
    names = [name.lower() for name, _ in draft.headers]
    return (
        draft.signing == PRESIGNED and len(names) != len(set(names)) and own(through) and through.status in (403, 502)
    )


def _error_length(draft: Draft, direct: Answer, through: Answer, difference: Difference) -> bool:
    return (
        draft.method == "HEAD"
        and difference.aspect == "header content-length"
        and direct.status == through.status >= 400
    )


def _list_of_deletes(draft: Draft, _direct: Answer, through: Answer, _difference: Difference) -> bool:
    return draft.kind == "delete-objects" and own(through) and code(through) == "MalformedXML"


def _head_size(_draft: Draft, _direct: Answer, through: Answer, _difference: Difference) -> bool:
    return code(through) == "RequestHeaderSectionTooLarge"


def _copy_source(draft: Draft, _direct: Answer, through: Answer, _difference: Difference) -> bool:
    source = next((value for name, value in draft.headers if name == "x-amz-copy-source"), "")
    return source.endswith("?versionId=") and own(through) and code(through) == "InvalidArgument"


def _two_signatures(draft: Draft, _direct: Answer, through: Answer, _difference: Difference) -> bool:
    return "Signature=x" in draft.query and own(through) and code(through) in ("InvalidArgument", "AccessDenied", "")


def _not_s3(draft: Draft, _direct: Answer, through: Answer, _difference: Difference) -> bool:
    known = draft.method in ("GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS")
    return own(through) and through.status == 405 and (not known or draft.path == "/")


def _chunks_of_no_data(draft: Draft, _direct: Answer, through: Answer, _difference: Difference) -> bool:
    said = b"The value of x-amz-content-sha256 header is invalid." in through.body
    return draft.signing in STREAMING and own(through) and through.status == 400 and (said or not through.body)


def _not_covered(draft: Draft, _direct: Answer, through: Answer, _difference: Difference) -> bool:
    return (
        draft.signing in OF_VERSION_2
        and own(through)
        and through.status in (400, 403)
        and (not sigv2.covers(draft.query) or b"By Signature Version 2 this request needs" in through.body)
    )


def _announced(draft: Draft, direct: Answer, through: Answer, difference: Difference) -> bool:
    told = any(name == "x-amz-trailer" for name, _ in draft.headers)
    return told and draft.signing in STREAMING and direct.status == through.status


def _prefix_of_another_way(draft: Draft, _direct: Answer, through: Answer, _difference: Difference) -> bool:
    said = b"Policy Condition failed: [&quot;starts-with&quot;, &quot;$key" in through.body.replace(b'"', b"&quot;")
    return said and own(through) and any(name == "key" and _WAYS.search(value) for name, value in _fields(draft))


def _fields(draft: Draft) -> Pairs:
    return draft.form.fields if draft.form else ()


def _words_of_conditions(draft: Draft, direct: Answer, through: Answer, difference: Difference) -> bool:
    same = direct.status == through.status == 403 and code(direct) == code(through)
    return draft.form is not None and same and difference.aspect == "body"


def _early(draft: Draft, direct: Answer, through: Answer, difference: Difference) -> bool:
    return draft.fault == "early" and _elsewhere(draft, direct, through, difference)


def _no_place(draft: Draft, direct: Answer, _through: Answer, difference: Difference) -> bool:
    return draft.form is not None and difference.aspect == "body" and b"<Location></Location>" in direct.body


def _no_text(draft: Draft, _direct: Answer, through: Answer, _difference: Difference) -> bool:
    return draft.form is not None and own(through) and b"is not UTF-8" in through.body


def _elsewhere(draft: Draft, _direct: Answer, through: Answer, _difference: Difference) -> bool:
    return draft.fault in ("region", "early") and own(through) and through.status in (400, 403)


# A key that a store could read as another way to one.
_WAYS = re.compile(r"(^|/)\.{0,2}/|/\.{0,2}$|\\")
BODY_FAULTS = {"policy", "sha256", "checksum", "chunk:1", "chunk:2", "trailer", "length"}
ENTRIES = [
    Entry(
        "not-s3",
        "methods that S3 does not have, and what is no ListBuckets where no bucket is named, reach no store: there it "
        "may be the store's administration, which would be done in the gateway's name",
        _not_s3,
    ),
    Entry(
        "chunks-of-no-data",
        "only the data of objects and parts comes in chunks, as on S3; some stores take them for any body",
        _chunks_of_no_data,
    ),
    Entry(
        "own-words",
        "a refusal of the gateway's own has the store's status and code, but its own words and none of the store's headers",
        _same_refusal,
    ),
    Entry(
        "order-of-refusals",
        "a signature, a body or a form that is wrong is refused here; the store may have refused for another reason first",
        _with_a_fault,
    ),
    Entry(
        "body-verified",
        "a body or form that is not what was signed, or has another checksum, is refused here, also where a store takes it",
        _wrong_body_taken,
    ),
    Entry(
        "chunks-decoded",
        "chunked uploads are decoded and verified here, also where the store does not know their form",
        _chunks,
    ),
    Entry(
        "aws-chunked",
        "`aws-chunked` is a coding of the transfer only: it is not kept with the object, which some stores do",
        _encoding,
    ),
    Entry(
        "store-cannot-verify",
        "a request whose signature the store reads differently from S3 (not UTF-8, repeated names) is refused with "
        "502 or 403, since the store then means the gateway's signature; the client's own was right",
        _store_cannot_verify,
    ),
    Entry(
        "signed-anew",
        "a request whose signature the store reads differently from S3 may be good when signed anew by the gateway",
        _signed_anew,
    ),
    Entry(
        "presigned-repeated",
        "the store ignores repeated headers of a presigned request, and misreads those of a signed one, which ours is",
        _presigned_repeated,
        ("versitygw", "ceph"),
    ),
    Entry(
        "error-length",
        "the length of an error document that only a GET would show, and that tells of the request",
        _error_length,
    ),
    Entry(
        "list-of-deletes",
        "what parsers could read differently in a DeleteObjects document is refused here, since it is judged key by key",
        _list_of_deletes,
    ),
    Entry(
        "head-size",
        "the gateway's own signature may be longer than the client's, and the store takes heads of 8 KiB at the most",
        _head_size,
        ("versitygw",),
    ),
    Entry(
        "copy-source",
        "an empty version of a copy's source is refused here, since stores differ in what it means",
        _copy_source,
    ),
    Entry(
        "two-signatures",
        "signed in its header or query, and with `Signature=` in its query: refused as S3 does",
        _two_signatures,
    ),
    Entry(
        "not-covered",
        "what Version 2 does not sign of a query is refused, but for what shapes a listing: anybody could have added it",
        _not_covered,
    ),
    Entry(
        "announced-trailer",
        "a trailer that is announced and that no chunked upload of this kind has is not announced to the store",
        _announced,
        ("versitygw",),
    ),
    Entry(
        "no-text",
        "a form whose key is not UTF-8 is refused, as S3's keys are UTF-8 and a policy could not name it",
        _no_text,
    ),
    Entry(
        "words-of-conditions",
        "the policy that a store gets has each condition as a list, and its refusal tells in which form it was",
        _words_of_conditions,
        ("ceph",),
    ),
    Entry(
        "prefix-of-another-way",
        "what a form's key must begin with, it must begin with in every way in which a store may read it",
        _prefix_of_another_way,
    ),
    Entry(
        "early",
        "what is presigned for a day to come is refused, as S3 does; versitygw takes it",
        _early,
        ("versitygw",),
    ),
    Entry(
        "no-place",
        "where the object of a form is, SeaweedFS does not always say; the gateway does",
        _no_place,
        ("seaweedfs",),
    ),
    Entry(
        "elsewhere",
        "what is signed for another region or for a day to come is refused, also where the store does not look at that",
        _elsewhere,
        ("ceph", "seaweedfs"),
    ),
]


def _names_a_key_twice(draft: Draft) -> bool:
    keys = re.findall(rb"<Key>(.*?)</Key>", draft.body, re.DOTALL)
    return draft.kind == "delete-objects" and len(keys) != len(set(keys))


def _empty_pair(draft: Draft) -> bool:
    return "&&" in draft.query or draft.query.startswith("&") or draft.query.endswith("&")


def _customer_key(draft: Draft) -> bool:
    return any("customer-key" in name.lower() for name, _ in draft.headers)


def _long_location(draft: Draft) -> bool:
    return (draft.kind == "complete" and len(draft.path) > 800) or any(len(value) > 800 for _, value in _fields(draft))


def _nameless_file(draft: Draft) -> bool:
    return draft.form is not None and not draft.form.file_name


def _beyond_the_file(draft: Draft) -> bool:
    form = draft.form
    return form is not None and (form.behind or any("${filename}" in value for _, value in form.fields))


@dataclass(frozen=True)
class Exclusion:
    """Requests that a store is not sent."""

    name: str
    reason: str
    stores: tuple[str, ...]
    matches: Callable[[Draft], bool]


EXCLUSIONS = [
    Exclusion(
        "empty-pair",
        "radosgw 16 reads `&&` in a signed query differently, and calls what comes of it AccessDenied",
        ("ceph",),
        _empty_pair,
    ),
    Exclusion(
        "customer-key",
        "SeaweedFS makes a random ETag for an object under a client's key",
        ("seaweedfs",),
        _customer_key,
    ),
    Exclusion(
        "delete-twice",
        "radosgw 16 aborts now and then at a DeleteObjects that names a key twice",
        ("ceph",),
        _names_a_key_twice,
    ),
    Exclusion(
        "long-location",
        "radosgw 16 writes what is behind a long key in its memory into a Location",
        ("ceph",),
        _long_location,
    ),
    Exclusion(
        "nameless-file",
        "a form's file without a name is a field to some stores, and the rest of the form part of it",
        ("versitygw", "seaweedfs"),
        _nameless_file,
    ),
    Exclusion(
        "form-of-its-own",
        "versitygw does not fill in `${filename}`, and asks the policy about fields behind the file",
        ("versitygw",),
        _beyond_the_file,
    ),
]


def excluded(store: str, draft: Draft) -> Exclusion | None:
    """Why a request is not sent to this store."""
    return next((one for one in EXCLUSIONS if store in one.stores and one.matches(draft)), None)


def entry(store: str, draft: Draft, direct: Answer, through: Answer, difference: Difference) -> Entry | None:
    """The entry that a difference falls under."""
    for one in ENTRIES:
        if (not one.stores or store in one.stores) and one.matches(draft, direct, through, difference):
            return one
    return None
