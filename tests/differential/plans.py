"""A plan: a handful of keys and the requests that are made with them, one after another. All of it is plain data."""

import base64
import hashlib
from collections.abc import Callable
from xml.sax.saxutils import escape

from hypothesis import strategies as st

from differential import odd, resources, uploads
from differential.drafts import (
    BODIES,
    Draw,
    Known,
    dressed,
    object_path,
    payload,
    rare,
    signing,
    source,
    version,
)
from differential.octets import Draft, Pairs

Plan = list[Draft]
Maker = Callable[[Draw, list[bytes]], list[Draft]]
_SSE_KEY = hashlib.sha256(b"key of the tests").digest()
_SSE = "x-amz-server-side-encryption-customer-"
SSE_C: Pairs = (
    (f"{_SSE}algorithm", "AES256"),
    (f"{_SSE}key", base64.b64encode(_SSE_KEY).decode()),
    (f"{_SSE}key-MD5", base64.b64encode(hashlib.md5(_SSE_KEY).digest()).decode()),
)


def _put(draw: Draw, keys: list[bytes]) -> list[Draft]:
    headers = draw(odd.METADATA) + rare(draw, st.sampled_from(odd.OBJECT_HEADERS).map(lambda h: (h,)), (), 2)
    headers += rare(draw, odd.conditions(), (), 4) + draw(odd.stray(1)) + rare(draw, st.just(SSE_C), (), 12)
    path = object_path(draw, keys)
    return [Draft("put", "PUT", path, draw(odd.stray_query()), **payload(draw, headers, draw(st.sampled_from(BODIES))))]


def _get(draw: Draw, keys: list[bytes]) -> list[Draft]:
    headers = rare(draw, st.sampled_from(odd.RANGES).map(lambda r: (("Range", r),)), (), 3)
    headers += rare(draw, odd.conditions(), (), 3) + draw(odd.stray()) + rare(draw, st.just(SSE_C), (), 12)
    part = rare(
        draw, st.sampled_from(["partNumber=1", "partNumber=2", "partNumber=0", "partNumber=x", "partNumber="]), "", 8
    )
    override = rare(draw, st.sampled_from(odd.OVERRIDES), "")
    query = odd.joined(override, part, version(draw), draw(odd.stray_query()))
    method = draw(st.sampled_from(["GET", "HEAD"]))
    return [Draft(method.lower(), method, object_path(draw, keys), query, headers, signing=signing(draw))]


def _delete(draw: Draw, keys: list[bytes]) -> list[Draft]:
    query = odd.joined(version(draw), draw(odd.stray_query()))
    headers = rare(draw, odd.conditions(), (), 4) + draw(odd.stray(1))
    return [Draft("delete", "DELETE", object_path(draw, keys), query, headers, signing=signing(draw))]


def _copy(draw: Draw, keys: list[bytes]) -> list[Draft]:
    directive = st.sampled_from(["COPY", "REPLACE", "REPLACE", "REPLACE", "copy", "OTHER", ""]).map(
        lambda v: (("x-amz-metadata-directive", v),)
    )
    headers = (("x-amz-copy-source", source(draw, keys)), *rare(draw, directive, (), 2), *draw(odd.METADATA))
    headers += rare(draw, odd.conditions("x-amz-copy-source-"), (), 3)
    headers += rare(draw, st.sampled_from(["COPY", "REPLACE"]).map(lambda v: (("x-amz-tagging-directive", v),)), (), 6)
    return [Draft("copy", "PUT", object_path(draw, keys), "", headers + draw(odd.stray(1)), signing=signing(draw))]


def _listing(draw: Draw, keys: list[bytes]) -> list[Draft]:
    """Both ListObjects, ListObjectVersions and ListMultipartUploads, with whatever parameters."""
    pieces = st.one_of(
        st.sampled_from(keys),
        st.sampled_from(keys).map(lambda k: k[:2]),
        st.sampled_from([b"", b"/", b"d", b"\xff", b"\n"]),
    )
    names = {
        "list": ["", "prefix", "delimiter", "marker", "max-keys", "encoding-type"],
        "list-v2": [
            "prefix",
            "delimiter",
            "start-after",
            "continuation-token",
            "fetch-owner",
            "max-keys",
            "encoding-type",
        ],
        "list-versions": ["prefix", "delimiter", "key-marker", "version-id-marker", "max-keys", "encoding-type"],
        "list-uploads": ["prefix", "delimiter", "key-marker", "upload-id-marker", "max-uploads", "encoding-type"],
    }
    kind = draw(st.sampled_from(sorted(names)))
    values = {
        "max-keys": ["1", "2", "0", "1000", "1001", "-1", "x", "", "99999999999999999999"],
        "max-uploads": ["1", "0", "-1", "x", ""],
        "encoding-type": ["url", "url", "URL", "xml", ""],
        "fetch-owner": ["true", "false", "x", ""],
        "version-id-marker": ["{version:0}", "null", "", "none"],
        "upload-id-marker": ["{upload:0}", "", "none"],
        "continuation-token": ["", "none", "{token:0}"],
    }
    chosen = draw(st.lists(st.sampled_from(names[kind]), max_size=4))
    query = {"list": [], "list-v2": ["list-type=2"], "list-versions": ["versions"], "list-uploads": ["uploads"]}[kind]
    for name in filter(None, chosen):
        value = draw(st.sampled_from(values[name])) if name in values else odd.quoted(draw(pieces))
        query.append(rare(draw, st.just(name), f"{name}={value}", 12))
    query = draw(st.permutations([*query, draw(odd.stray_query())]))
    slash = draw(st.sampled_from(["/{bucket}", "/{bucket}/"]))
    return [Draft(kind, "GET", slash, odd.joined(*query), draw(odd.stray(1)), signing=signing(draw))]


def _delete_objects(draw: Draw, keys: list[bytes]) -> list[Draft]:
    entries = ""
    for key in draw(st.lists(st.sampled_from(keys), max_size=4)):
        text = escape(key.decode("utf-8", "replace"), {"\n": "&#10;", "\r": "&#13;"})
        of = rare(
            draw,
            st.sampled_from(["{version:0}", "{version:1}", "null", "none"]).map(
                lambda v: f"<VersionId>{v}</VersionId>"
            ),
            "",
        )
        entries += f"<Object><Key>{text}</Key>{of}</Object>"
    quiet = draw(st.sampled_from(["", "<Quiet>true</Quiet>", "<Quiet>false</Quiet>"]))
    namespace = draw(st.sampled_from(["", ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"']))
    document = f"<Delete{namespace}>{quiet}{entries}</Delete>"
    document = rare(draw, st.sampled_from(["", "<Delete>", "<Foo/>", "{}"]), document, 10)
    what = payload(draw, draw(odd.stray(1)), document.encode("utf-8", "surrogatepass"))
    if what["checksum"] == "" and draw(st.integers(0, 3)):
        what["checksum"] = "content-md5"
    return [Draft("delete-objects", "POST", "/{bucket}", draw(st.sampled_from(["delete", "delete="])), **what)]


# How often each of them is taken.
_MAKERS: list[Maker] = [
    *[_put] * 9, *[_get] * 11, *[_delete] * 3, *[_copy] * 4, *[_listing] * 7, *[_delete_objects] * 3,
    *[uploads.step] * 5, *[uploads.whole] * 3, *[resources.any_resource] * 4, *[resources.configured] * 3,
    *[resources.tagged] * 2, *[resources.versioned] * 2, *[resources.attributes] * 2, *[resources.form] * 4,
    resources.preflight, *[resources.service] * 2,
]  # fmt: skip


@st.composite
def plans(draw: Draw, known: Known, steps_max: int = 14) -> Plan:
    """Keys are few, so that requests meet. A bucket may have versions or locks from the start, and mostly has objects."""
    keys = draw(st.lists(odd.keys(), min_size=1, max_size=3, unique=True))
    begin = draw(st.sampled_from(["", "", "", "", "", "", "", "versions", "versions", "versions", "locks"]))
    plan = [resources.versioning(draw)] if begin == "versions" else []
    plan += resources.locked(draw, keys) if begin == "locks" else []
    for key in keys if draw(st.integers(0, 3)) else []:
        plan.append(Draft("put", "PUT", "/{bucket}/" + odd.spell(key, "sdk"), body=draw(st.sampled_from(BODIES))))
    for maker in draw(st.lists(st.sampled_from(range(len(_MAKERS))), min_size=2, max_size=steps_max)):
        plan += _MAKERS[maker](draw, keys)
    return [dressed(draw, draft, known) for draft in plan]
