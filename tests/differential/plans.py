"""A plan: a handful of keys and the requests that are made with them, one after another. All of it is plain data."""

import base64
import hashlib
from collections.abc import Callable
from xml.sax.saxutils import escape

from hypothesis import strategies as st

from differential import odd
from differential.octets import (
    ALGORITHMS,
    PRESIGNED,
    SHA256,
    STREAM,
    STREAM_TRAILER,
    STREAM_UNSIGNED_TRAILER,
    UNSIGNED,
    Draft,
    Pairs,
)

Plan = list[Draft]
Draw = Callable[[st.SearchStrategy], object]
PART_BYTES_MIN = 5 << 20
_BODIES = [b"", b"a", b"hello world", bytes(range(256)) * 3, b"z" * 70_000, b"0\r\n\r\n"]
_SSE_KEY = hashlib.sha256(b"key of the tests").digest()
_SSE = "x-amz-server-side-encryption-customer-"
SSE_C: Pairs = (
    (f"{_SSE}algorithm", "AES256"),
    (f"{_SSE}key", base64.b64encode(_SSE_KEY).decode()),
    (f"{_SSE}key-MD5", base64.b64encode(hashlib.md5(_SSE_KEY).digest()).decode()),
)
_INDEX = st.integers(0, 3)


def _rare(draw: Draw, what: st.SearchStrategy, otherwise: object, one_in: int = 4) -> object:
    return draw(what) if draw(st.integers(1, one_in)) == one_in else otherwise


def _object(draw: Draw, keys: list[bytes]) -> str:
    key = draw(st.sampled_from(keys))
    return "/{bucket}/" + odd.spell(key, draw(st.sampled_from(odd.SPELLINGS)))


def _version(draw: Draw) -> str:
    some = [
        "versionId={version:0}",
        "versionId={version:1}",
        "versionId=null",
        "versionId=",
        "versionId=none",
        "versionId={version:0}&versionId=null",
    ]
    return _rare(draw, st.sampled_from(some), "")


def _payload(draw: Draw, headers: Pairs, body: bytes) -> dict:
    """How the body is signed and what vouches for it, right or wrong."""
    signing = draw(
        st.sampled_from([SHA256, SHA256, UNSIGNED, PRESIGNED, STREAM, STREAM_TRAILER, STREAM_UNSIGNED_TRAILER])
    )
    small = len(body) <= 100_000
    algorithm = draw(st.sampled_from(["", "", "md5", *(ALGORITHMS if small else ["crc32", "sha1", "sha256"])]))
    trailer = signing in (STREAM_TRAILER, STREAM_UNSIGNED_TRAILER)
    if trailer:
        algorithm = draw(st.sampled_from(ALGORITHMS if small else ["crc32", "sha1", "sha256"]))
        if draw(st.booleans()):
            headers += (("x-amz-sdk-checksum-algorithm", algorithm.upper()),)
    coded = any(name.lower() == "content-encoding" for name, _ in headers)
    if signing in (STREAM, STREAM_TRAILER, STREAM_UNSIGNED_TRAILER) and not coded and draw(st.booleans()):
        headers += (
            ("Content-Encoding", draw(st.sampled_from(["aws-chunked", "aws-chunked,gzip", "gzip,aws-chunked"]))),
        )
    faults = ["sha256"] if signing == SHA256 else []
    faults += ["checksum"] if algorithm else []
    faults += ["chunk:1", "chunk:2"] if signing in (STREAM, STREAM_TRAILER) else []
    faults += ["trailer"] if signing == STREAM_TRAILER else []
    return {
        "headers": headers,
        "body": body,
        "signing": signing,
        "chunk": draw(st.sampled_from([65536, 8192])),
        "checksum": algorithm,
        "trailer": trailer,
        "fault": _rare(draw, st.sampled_from(faults), "", 6) if faults else "",
        "expect": _rare(draw, st.just(True), False, 6),
    }


def _signing(draw: Draw) -> str:
    return draw(st.sampled_from([SHA256, SHA256, SHA256, UNSIGNED, PRESIGNED]))


def _put(draw: Draw, keys: list[bytes]) -> Draft:
    headers = draw(odd.METADATA) + _rare(draw, st.sampled_from(odd.OBJECT_HEADERS).map(lambda h: (h,)), (), 2)
    headers += _rare(draw, odd.conditions(), (), 4) + draw(odd.stray(1)) + _rare(draw, st.just(SSE_C), (), 12)
    path = _object(draw, keys)
    return Draft("put", "PUT", path, draw(odd.stray_query()), **_payload(draw, headers, draw(st.sampled_from(_BODIES))))


def _get(draw: Draw, keys: list[bytes]) -> Draft:
    headers = _rare(draw, st.sampled_from(odd.RANGES).map(lambda r: (("Range", r),)), (), 2)
    headers += _rare(draw, odd.conditions(), (), 2) + draw(odd.stray()) + _rare(draw, st.just(SSE_C), (), 12)
    part = _rare(
        draw, st.sampled_from(["partNumber=1", "partNumber=2", "partNumber=0", "partNumber=x", "partNumber="]), "", 8
    )
    override = _rare(draw, st.sampled_from(odd.OVERRIDES), "")
    query = odd.joined(override, part, _version(draw), draw(odd.stray_query()))
    method = draw(st.sampled_from(["GET", "HEAD"]))
    fault = _rare(draw, st.sampled_from(["secret", "key", "late"]), "", 40)
    path = _object(draw, keys)
    return Draft(method.lower(), method, path, query, headers, signing=_signing(draw), fault=fault)


def _delete(draw: Draw, keys: list[bytes]) -> Draft:
    query = odd.joined(_version(draw), draw(odd.stray_query()))
    headers = _rare(draw, odd.conditions(), (), 4) + draw(odd.stray(1))
    return Draft("delete", "DELETE", _object(draw, keys), query, headers, signing=_signing(draw))


def _copy(draw: Draw, keys: list[bytes]) -> Draft:
    source = _source(draw, keys)
    directive = st.sampled_from(["COPY", "REPLACE", "copy", "OTHER", ""]).map(
        lambda v: (("x-amz-metadata-directive", v),)
    )
    headers = (("x-amz-copy-source", source), *_rare(draw, directive, (), 2), *draw(odd.METADATA))
    headers += _rare(draw, odd.conditions("x-amz-copy-source-"), (), 3)
    headers += _rare(draw, st.sampled_from(["COPY", "REPLACE"]).map(lambda v: (("x-amz-tagging-directive", v),)), (), 6)
    return Draft("copy", "PUT", _object(draw, keys), "", headers + draw(odd.stray(1)), signing=_signing(draw))


def _source(draw: Draw, keys: list[bytes]) -> str:
    key = odd.spell(draw(st.sampled_from(keys)), draw(st.sampled_from(odd.SPELLINGS)))
    bucket = draw(st.sampled_from(["{bucket}", "/{bucket}", "/{bucket}", "{missing}"]))
    return f"{bucket}/{key}" + _rare(
        draw, st.sampled_from(["?versionId={version:0}", "?versionId=null", "?versionId="]), "", 5
    )


def _listing(draw: Draw, keys: list[bytes]) -> Draft:
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
        query.append(_rare(draw, st.just(name), f"{name}={value}", 12))
    query = draw(st.permutations([*query, draw(odd.stray_query())]))
    slash = draw(st.sampled_from(["/{bucket}", "/{bucket}/"]))
    return Draft(kind, "GET", slash, odd.joined(*query), draw(odd.stray(1)), signing=_signing(draw))


_DOCUMENTS = {
    "tagging": ["<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>",
                "<Tagging><TagSet/></Tagging>",
                "<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag><Tag><Key>a</Key><Value>2</Value></Tag></TagSet></Tagging>"],
    "acl": ["<AccessControlPolicy/>"],
    "versioning": ["<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"] * 2
    + ["<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>", "<VersioningConfiguration/>"],
    "cors": ["<CORSConfiguration><CORSRule><AllowedOrigin>*</AllowedOrigin><AllowedMethod>GET</AllowedMethod>"
             "</CORSRule></CORSConfiguration>"],
    "lifecycle": ["<LifecycleConfiguration><Rule><ID>r</ID><Prefix>none/</Prefix><Status>Enabled</Status>"
                  "<Expiration><Days>1000</Days></Expiration></Rule></LifecycleConfiguration>"],
    "policy": ['{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:GetObject",'
               '"Resource":"arn:aws:s3:::{bucket}/*"}]}', "{}"],
    "retention": ["<Retention><Mode>GOVERNANCE</Mode><RetainUntilDate>2100-01-01T00:00:00Z</RetainUntilDate></Retention>"],
    "legal-hold": ["<LegalHold><Status>OFF</Status></LegalHold>"],
    "ownershipControls": ["<OwnershipControls><Rule><ObjectOwnership>BucketOwnerEnforced</ObjectOwnership></Rule>"
                          "</OwnershipControls>"],
}  # fmt: skip


def _resource(draw: Draw, keys: list[bytes]) -> Draft:
    """A subresource of a bucket or an object, known or not, by any method."""
    of_bucket = draw(st.booleans())
    name = draw(st.sampled_from(odd.BUCKET_RESOURCES if of_bucket else odd.OBJECT_RESOURCES))
    query = odd.joined(name, "" if of_bucket else _version(draw), draw(odd.stray_query()))
    path = "/{bucket}" if of_bucket else _object(draw, keys)
    method = draw(st.sampled_from(["GET", "GET", "HEAD", "PUT", "PUT", "DELETE", "POST", "PATCH"]))
    kind = f"{'bucket' if of_bucket else 'object'}-resource"
    if method not in ("PUT", "POST", "PATCH"):
        return Draft(kind, method, path, query, draw(odd.stray(1)), signing=_signing(draw))
    # An object's body must be the same for both twins; a policy names its bucket.
    known = [] if name == "policy" and not of_bucket else _DOCUMENTS.get(name, [])
    documents = [*known, *known, "", "<Foo/>", "no document", "<Tagging><TagSet>"]
    body = draw(st.sampled_from(documents)).encode()
    return Draft(kind, method, path, query, **_payload(draw, draw(odd.stray(1)), body))


def _versioning(draw: Draw, keys: list[bytes]) -> Draft:
    body = draw(st.sampled_from(_DOCUMENTS["versioning"])).encode()
    return Draft("versioning", "PUT", "/{bucket}", "versioning", body=body, checksum="md5")


def _delete_objects(draw: Draw, keys: list[bytes]) -> Draft:
    entries = ""
    for key in draw(st.lists(st.sampled_from(keys), max_size=4)):
        text = escape(key.decode("utf-8", "replace"), {"\n": "&#10;", "\r": "&#13;"})
        version = _rare(
            draw,
            st.sampled_from(["{version:0}", "{version:1}", "null", "none"]).map(
                lambda v: f"<VersionId>{v}</VersionId>"
            ),
            "",
        )
        entries += f"<Object><Key>{text}</Key>{version}</Object>"
    quiet = draw(st.sampled_from(["", "<Quiet>true</Quiet>", "<Quiet>false</Quiet>"]))
    namespace = draw(st.sampled_from(["", ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"']))
    document = f"<Delete{namespace}>{quiet}{entries}</Delete>"
    document = _rare(draw, st.sampled_from(["", "<Delete>", "<Foo/>", "{}"]), document, 10)
    what = _payload(draw, draw(odd.stray(1)), document.encode("utf-8", "surrogatepass"))
    if what["checksum"] == "" and draw(st.booleans()):
        what["checksum"] = "md5"
    return Draft("delete-objects", "POST", "/{bucket}", draw(st.sampled_from(["delete", "delete="])), **what)


def _upload(draw: Draw, keys: list[bytes]) -> Draft:
    """Multipart uploads, their steps in any order and of any upload."""
    step = draw(
        st.sampled_from(["create", "part", "part", "part", "part-copy", "complete", "complete", "abort", "parts"])
    )
    path = _object(draw, [keys[0]])
    upload = _rare(draw, st.sampled_from(["{upload:0}", "{upload:1}", "none", ""]), "{upload:0}", 5)
    number = draw(st.sampled_from(["1", "1", "1", "2", "2", "3", "0", "10000", "10001", "x", ""]))
    if step == "create":
        headers = draw(odd.METADATA) + _rare(draw, st.sampled_from(odd.OBJECT_HEADERS).map(lambda h: (h,)), (), 3)
        headers += _rare(
            draw,
            st.sampled_from(["CRC32", "SHA256", "CRC64NVME", "none"]).map(lambda a: (("x-amz-checksum-algorithm", a),)),
            (),
            3,
        )
        return Draft("create-upload", "POST", path, "uploads", headers, signing=_signing(draw))
    if step == "part":
        body = _rare(draw, st.just(b"p" * PART_BYTES_MIN), draw(st.sampled_from(_BODIES)), 8)
        query = f"partNumber={number}&uploadId={upload}"
        return Draft("part", "PUT", path, query, **_payload(draw, draw(odd.stray(1)), body))
    if step == "part-copy":
        headers = (("x-amz-copy-source", _source(draw, keys)),)
        headers += _rare(draw, st.sampled_from(odd.RANGES).map(lambda r: (("x-amz-copy-source-range", r),)), (), 3)
        return Draft(
            "part-copy", "PUT", path, f"uploadId={upload}&partNumber={number}", headers, signing=_signing(draw)
        )
    if step == "complete":
        numbers = draw(st.lists(st.integers(1, 3), max_size=3)) if draw(st.booleans()) else [1]
        parts = "".join(
            f"<Part><PartNumber>{n}</PartNumber><ETag>{_rare(draw, st.just('none'), f'{{part:{n}}}', 8)}</ETag></Part>"
            for n in numbers
        )
        body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        headers = _rare(draw, odd.conditions(), (), 5)
        return Draft("complete", "POST", path, f"uploadId={upload}", **_payload(draw, headers, body))
    if step == "abort":
        return Draft("abort", "DELETE", path, f"uploadId={upload}", signing=_signing(draw))
    limits = _rare(
        draw, st.sampled_from(["max-parts=1", "part-number-marker=1", "max-parts=x", "encoding-type=url"]), "", 2
    )
    return Draft("list-parts", "GET", path, odd.joined(f"uploadId={upload}", limits), signing=_signing(draw))


def _service(draw: Draw, keys: list[bytes]) -> Draft:
    """Of a bucket or of none."""
    some = [
        ("GET", "/", ""), ("HEAD", "/", ""), ("HEAD", "/{bucket}", ""), ("PUT", "/{bucket}", ""), ("GET", "/{missing}", ""),
        ("DELETE", "/{bucket}", ""), ("GET", "/{missing}/k", ""), ("PUT", "/{missing}/k", ""), ("HEAD", "/{missing}", ""),
        ("GET", "/", "max-buckets=1"), ("PUT", "/x", ""), ("PUT", "/INVALID_Name", ""), ("DELETE", "/{missing}", ""),
        ("PATCH", "/{bucket}/k", ""), ("FOO", "/{bucket}/k", ""), ("PUT", "/", ""), ("DELETE", "/", ""), ("POST", "/", ""),
        ("POST", "/{bucket}/k", ""), ("POST", "/{bucket}", ""),
        ("GET", "/{bucket}/", "location"), ("GET", "/", "prefix=twin"), ("DELETE", "/{bucket}/", ""),
    ]  # fmt: skip
    method, path, query = draw(st.sampled_from(some))
    return Draft(
        "service", method, path, odd.joined(query, draw(odd.stray_query())), draw(odd.stray(1)), signing=_signing(draw)
    )


_MAKERS = [_put] * 8 + [_get] * 10 + [_delete] * 3 + [_copy] * 3 + [_listing] * 6 + [_resource] * 5 + [_versioning]
_MAKERS += [_delete_objects] * 3 + [_upload] * 8 + [_service] * 2


@st.composite
def plans(draw: Draw, steps_max: int = 14) -> Plan:
    """Keys are few, so that requests meet; the first request often leaves an object."""
    keys = draw(st.lists(odd.keys(), min_size=1, max_size=3, unique=True))
    makers = draw(st.lists(st.sampled_from(range(len(_MAKERS))), min_size=2, max_size=steps_max))
    return [_MAKERS[maker](draw, keys) for maker in makers]
