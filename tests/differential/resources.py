"""Subresources of buckets and objects: any by any method, and each with a document that it takes, read again and taken away;
versions, locks, preflights, forms, and what belongs to no bucket."""

from hypothesis import strategies as st

from differential import odd
from differential.drafts import (
    BODIES,
    Draw,
    likely_path,
    object_path,
    one_header,
    payload,
    rare,
    signing,
    story,
    version,
)
from differential.forms import Form
from differential.octets import FORM, NOBODY, Draft, Pairs

_GRANTEE = (
    '<Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="CanonicalUser"><ID>{owner}</ID></Grantee>'
)
_ACL = (
    "<AccessControlPolicy><Owner><ID>{owner}</ID></Owner><AccessControlList><Grant>%s<Permission>FULL_CONTROL</Permission>"
    "</Grant>%s</AccessControlList></AccessControlPolicy>"
)
_PUBLIC = (
    '<Grant><Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="Group">'
    "<URI>http://acs.amazonaws.com/groups/global/AllUsers</URI></Grantee><Permission>READ</Permission></Grant>"
)
_TAG = "<Tag><Key>%s</Key><Value>%s</Value></Tag>"
# Documents that are good on some store at least come first; every third or so is not.
_DOCUMENTS = {
    "tagging": ["<Tagging><TagSet>%s</TagSet></Tagging>" % (_TAG % ("a", "b")),
                "<Tagging><TagSet>%s</TagSet></Tagging>" % (_TAG % ("a b", "&#233;+/") + _TAG % ("c", "")),
                "<Tagging><TagSet/></Tagging>",
                "<Tagging><TagSet>%s</TagSet></Tagging>" % (_TAG % ("a", "1") + _TAG % ("a", "2"))],
    "acl": [_ACL % (_GRANTEE, ""), _ACL % (_GRANTEE, _PUBLIC), "<AccessControlPolicy/>"],
    "versioning": ["<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"] * 2
    + ["<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>", "<VersioningConfiguration/>"],
    "cors": ["<CORSConfiguration><CORSRule><AllowedOrigin>*</AllowedOrigin><AllowedMethod>GET</AllowedMethod>"
             "</CORSRule></CORSConfiguration>",
             "<CORSConfiguration><CORSRule><ID>r</ID><AllowedOrigin>http://example.com</AllowedOrigin>"
             "<AllowedMethod>PUT</AllowedMethod><AllowedMethod>GET</AllowedMethod><AllowedHeader>*</AllowedHeader>"
             "<ExposeHeader>ETag</ExposeHeader><MaxAgeSeconds>60</MaxAgeSeconds></CORSRule></CORSConfiguration>"],
    "lifecycle": ["<LifecycleConfiguration><Rule><ID>r</ID><Prefix>none/</Prefix><Status>Enabled</Status>"
                  "<Expiration><Days>1000</Days></Expiration></Rule></LifecycleConfiguration>",
                  "<LifecycleConfiguration><Rule><ID>r</ID><Filter><Prefix>none/</Prefix></Filter><Status>Enabled</Status>"
                  "<Expiration><Days>1000</Days></Expiration></Rule></LifecycleConfiguration>"],
    "policy": ['{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:GetObject",'
               '"Resource":"arn:aws:s3:::{bucket}/*"}]}',
               '{"Version":"2012-10-17","Statement":[{"Sid":"s","Effect":"Deny","Principal":"*","Action":"s3:PutObject",'
               '"Resource":"arn:aws:s3:::{bucket}/never/*"}]}', "{}"],
    "encryption": ["<ServerSideEncryptionConfiguration><Rule><ApplyServerSideEncryptionByDefault><SSEAlgorithm>AES256"
                   "</SSEAlgorithm></ApplyServerSideEncryptionByDefault></Rule></ServerSideEncryptionConfiguration>"],
    "publicAccessBlock": ["<PublicAccessBlockConfiguration><BlockPublicAcls>true</BlockPublicAcls>"
                          "</PublicAccessBlockConfiguration>"],
    "requestPayment": ["<RequestPaymentConfiguration><Payer>BucketOwner</Payer></RequestPaymentConfiguration>"],
    "website": ["<WebsiteConfiguration><IndexDocument><Suffix>index.html</Suffix></IndexDocument></WebsiteConfiguration>"],
    "notification": ["<NotificationConfiguration/>"],
    "logging": ["<BucketLoggingStatus/>"],
    "accelerate": ["<AccelerateConfiguration><Status>Suspended</Status></AccelerateConfiguration>"],
    "object-lock": ["<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled></ObjectLockConfiguration>",
                    "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention>"
                    "<Mode>GOVERNANCE</Mode><Days>1</Days></DefaultRetention></Rule></ObjectLockConfiguration>"],
    "retention": ["<Retention><Mode>GOVERNANCE</Mode><RetainUntilDate>2100-01-01T00:00:00Z</RetainUntilDate></Retention>"],
    "legal-hold": ["<LegalHold><Status>OFF</Status></LegalHold>", "<LegalHold><Status>ON</Status></LegalHold>"],
    "ownershipControls": ["<OwnershipControls><Rule><ObjectOwnership>BucketOwnerPreferred</ObjectOwnership></Rule>"
                          "</OwnershipControls>",
                          "<OwnershipControls><Rule><ObjectOwnership>BucketOwnerEnforced</ObjectOwnership></Rule>"
                          "</OwnershipControls>"],
    "restore": ["<RestoreRequest><Days>1</Days></RestoreRequest>"],
}  # fmt: skip
# Those that most stores know come more often.
_OF_BUCKETS = [name for name in _DOCUMENTS if name not in ("retention", "legal-hold", "restore")]
_OF_BUCKETS += ["cors", "lifecycle", "policy", "tagging", "acl"] * 3
_PREFLIGHT: Pairs = (("Origin", "http://example.com"), ("Access-Control-Request-Method", "GET"))


def any_resource(draw: Draw, keys: list[bytes]) -> list[Draft]:
    """A subresource of a bucket or an object, known or not, by any method."""
    of_bucket = draw(st.booleans())
    name = draw(st.sampled_from(odd.BUCKET_RESOURCES if of_bucket else odd.OBJECT_RESOURCES))
    query = odd.joined(name, "" if of_bucket else version(draw), draw(odd.stray_query()))
    path = "/{bucket}" if of_bucket else object_path(draw, keys)
    method = draw(st.sampled_from(["GET", "GET", "HEAD", "PUT", "PUT", "DELETE", "POST", "PATCH"]))
    kind = f"{'bucket' if of_bucket else 'object'}-resource"
    if method not in ("PUT", "POST", "PATCH"):
        return [Draft(kind, method, path, query, draw(odd.stray(1)), signing=signing(draw))]
    # An object's body must be the same for both twins; a policy names its bucket.
    known = [] if name == "policy" and not of_bucket else _DOCUMENTS.get(name, [])
    documents = [*known, *known, "", "<Foo/>", "no document", "<Tagging><TagSet>"]
    body = draw(st.sampled_from(documents)).encode()
    return [Draft(kind, method, path, query, **payload(draw, draw(odd.stray(1)), body))]


def configured(draw: Draw, keys: list[bytes]) -> list[Draft]:
    """What a bucket is told, is asked about, does and forgets."""
    name = draw(st.sampled_from(_OF_BUCKETS))
    steps = [_told(draw, "/{bucket}", name)]
    if name == "acl":
        # Where buckets have no ACLs unless they are told so.
        steps.insert(
            0,
            Draft(
                "put ownershipControls", "PUT", "/{bucket}", "ownershipControls", body=_document("ownershipControls")
            ),
        )
    steps.append(_asked(draw, "/{bucket}", name))
    if name == "cors":
        steps += preflight(draw, keys)
        steps.append(Draft("get", "GET", object_path(draw, keys), "", (("Origin", "http://example.com"),)))
    elif name in ("policy", "acl"):
        steps.append(Draft("get policyStatus", "GET", "/{bucket}", "policyStatus", signing=signing(draw)))
    steps += [
        Draft(f"delete {name}", "DELETE", "/{bucket}", name, signing=signing(draw)),
        _asked(draw, "/{bucket}", name),
    ]
    return story(draw, steps)


def tagged(draw: Draw, keys: list[bytes]) -> list[Draft]:
    """An object, or a version of it, that gets tags or an ACL."""
    path, of, name = likely_path(draw, keys), version(draw), draw(st.sampled_from(["tagging", "tagging", "acl"]))
    steps = [Draft("put", "PUT", path, body=b"tagged"), _told(draw, path, name, of), _asked(draw, path, name, of)]
    if name == "tagging":
        query = odd.joined(name, of)
        steps += [Draft("delete tagging", "DELETE", path, query, signing=signing(draw)), _asked(draw, path, name, of)]
    else:
        canned = draw(st.sampled_from(["public-read", "private", "bucket-owner-full-control"]))
        steps.append(
            Draft("put acl", "PUT", path, odd.joined("acl", of), (("x-amz-acl", canned),), signing=signing(draw))
        )
        steps.append(_asked(draw, path, name, of))
    return story(draw, steps)


def versioned(draw: Draw, keys: list[bytes]) -> list[Draft]:
    """Versions of an object that are made, read, hidden and taken away."""
    path = likely_path(draw, keys)
    again = rare(draw, st.just(object_path(draw, keys)), path, 3)
    old = "versionId={version:1}"
    steps = [
        versioning(draw),
        Draft("put", "PUT", path, body=b"one"),
        Draft("put", "PUT", again, body=b"two"),
        Draft("get", "GET", path, old, signing=signing(draw)),
        Draft("delete", "DELETE", path, signing=signing(draw)),
        Draft("head", "HEAD", path),
        Draft("list-versions", "GET", "/{bucket}", "versions", signing=signing(draw)),
        Draft("copy", "PUT", again, "", (("x-amz-copy-source", f"{path}?{old}"),), signing=signing(draw)),
        Draft("delete", "DELETE", path, draw(st.sampled_from(["versionId={version:0}", old])), signing=signing(draw)),
        Draft("get", "GET", path, signing=signing(draw)),
    ]
    return story(draw, steps)


def versioning(draw: Draw) -> Draft:
    body = draw(st.sampled_from(_DOCUMENTS["versioning"])).encode()
    return Draft("put versioning", "PUT", "/{bucket}", "versioning", body=body, checksum="content-md5")


def locked(draw: Draw, keys: list[bytes]) -> list[Draft]:
    """The bucket made anew with locks, an object in it, and who may take it away."""
    path = likely_path(draw, keys)
    lock: Pairs = (("x-amz-bucket-object-lock-enabled", "true"),)
    past: Pairs = (("x-amz-bypass-governance-retention", "true"),)
    kept: Pairs = (
        ("x-amz-object-lock-mode", "GOVERNANCE"),
        ("x-amz-object-lock-retain-until-date", "2100-01-01T00:00:00Z"),
    )
    held = rare(draw, st.sampled_from([kept, (("x-amz-object-lock-legal-hold", "ON"),)]), (), 2)
    version_of = "versionId={version:0}"
    steps = [
        Draft("delete-bucket", "DELETE", "/{bucket}"),
        Draft("create-bucket", "PUT", "/{bucket}", "", lock, signing=signing(draw)),
        *(
            [_told(draw, "/{bucket}", "object-lock"), _asked(draw, "/{bucket}", "object-lock")]
            if draw(st.booleans())
            else []
        ),
        Draft("put", "PUT", path, "", held, b"locked", checksum="content-md5"),
    ]
    name = draw(st.sampled_from(["retention", "legal-hold"]))
    steps += [_told(draw, path, name, ""), _asked(draw, path, name, ""), Draft("head", "HEAD", path)]
    steps += [
        Draft("delete", "DELETE", path, version_of, signing=signing(draw)),
        Draft("put legal-hold", "PUT", path, "legal-hold", body=_document("legal-hold"), checksum="content-md5"),
        Draft("delete", "DELETE", path, version_of, past, signing=signing(draw)),
    ]
    return story(draw, steps)


def attributes(draw: Draw, keys: list[bytes]) -> list[Draft]:
    names = draw(
        st.sampled_from(["ETag", "ETag,Checksum,ObjectParts,StorageClass,ObjectSize", "ObjectSize", "None", ""])
    )
    headers: Pairs = (("x-amz-object-attributes", names),)
    headers += one_header(draw, "x-amz-max-parts", ["1", "0", "x"], 5) + one_header(
        draw, "x-amz-part-number-marker", ["1", "x"], 5
    )
    query = odd.joined("attributes", version(draw))
    return [Draft("attributes", "GET", object_path(draw, keys), query, headers, signing=signing(draw))]


def preflight(draw: Draw, keys: list[bytes]) -> list[Draft]:
    """What a browser asks first, unsigned."""
    headers = rare(
        draw,
        st.sampled_from([_PREFLIGHT[:1], _PREFLIGHT[1:], (("Origin", "http://other.example"), _PREFLIGHT[1])]),
        _PREFLIGHT,
    )
    headers += one_header(draw, "Access-Control-Request-Headers", ["content-type, x-amz-meta-a", "x-amz-date", ""], 2)
    path = rare(draw, st.sampled_from(["/{bucket}", "/{missing}/k", "/"]), object_path(draw, keys), 3)
    return [Draft("preflight", "OPTIONS", path, draw(odd.stray_query()), headers, signing=NOBODY)]


_FIELDS: Pairs = (
    ("Content-Type", "text/plain"), ("acl", "public-read"), ("x-amz-meta-a", "value"),
    ("success_action_status", "201"), ("success_action_status", "200"), ("success_action_status", "999"),
    ("success_action_redirect", "http://example.com/done?a=b"), ("Cache-Control", "no-cache"),
    ("Content-Disposition", "attachment"), ("tagging", _DOCUMENTS["tagging"][0]),
    ("x-amz-storage-class", "STANDARD"), ("Content-Encoding", "gzip"), ("x-ignore-this", "x"), ("x-amz-meta-b", ""),
)  # fmt: skip


def form(draw: Draw, keys: list[bytes]) -> list[Draft]:
    """A browser's upload, and what it left."""
    key = draw(st.sampled_from(keys))
    path = "/{bucket}/" + odd.spell(key, "sdk")
    name = key.decode("latin-1") + rare(draw, st.just("${filename}"), "", 5)
    fields = draw(st.lists(st.sampled_from(_FIELDS), max_size=3, unique_by=lambda pair: pair[0]))
    # What is compared is the key with the file's name in it, and only S3 leaves the name's folders out.
    named = "${filename}" in name
    conditions = ["prefix"] if named else ["exact", "exact", "prefix", "length", "short"]
    what = Form(
        tuple(draw(st.permutations([("key", name), *fields]))),
        draw(st.sampled_from(conditions)),
        draw(st.sampled_from(["f.bin", "f g.bin"] if named else ["f.bin", "f g.bin", "", "C:\\\\dir\\\\f.bin"])),
        draw(st.booleans()),
    )
    fault = rare(draw, st.just("policy"), "", 8)
    origin = one_header(draw, "Origin", ["http://example.com"], 2)
    slash = draw(st.sampled_from(["/{bucket}", "/{bucket}/"]))
    sent = Draft("form", "POST", slash, "", origin, draw(st.sampled_from(BODIES)), FORM, fault=fault, form=what)
    return [sent, *([Draft("head", "HEAD", path)] if draw(st.booleans()) else [])]


def service(draw: Draw, _keys: list[bytes]) -> list[Draft]:
    """Of a bucket or of none."""
    some = [
        ("GET", "/", ""), ("HEAD", "/", ""), ("HEAD", "/{bucket}", ""), ("PUT", "/{bucket}", ""), ("GET", "/{missing}", ""),
        ("DELETE", "/{bucket}", ""), ("GET", "/{missing}/k", ""), ("PUT", "/{missing}/k", ""), ("HEAD", "/{missing}", ""),
        ("GET", "/", "max-buckets=1"), ("PUT", "/x", ""), ("PUT", "/INVALID_Name", ""), ("DELETE", "/{missing}", ""),
        ("PATCH", "/{bucket}/k", ""), ("FOO", "/{bucket}/k", ""), ("PUT", "/", ""), ("DELETE", "/", ""), ("POST", "/", ""),
        ("POST", "/{bucket}/k", ""), ("POST", "/{bucket}", ""), ("GET", "/{bucket}", "location"),
        ("GET", "/{bucket}/", "location"), ("GET", "/", "prefix=twin"), ("DELETE", "/{bucket}/", ""),
    ]  # fmt: skip
    method, path, query = draw(st.sampled_from(some))
    query = odd.joined(query, draw(odd.stray_query()))
    return [Draft("service", method, path, query, draw(odd.stray(1)), signing=signing(draw))]


def _document(name: str) -> bytes:
    return _DOCUMENTS[name][0].encode()


def _told(draw: Draw, path: str, name: str, of: str = "") -> Draft:
    """A document is put, most often with what S3 wants to vouch for it."""
    body = draw(st.sampled_from(_DOCUMENTS[name])).encode()
    query = odd.joined(name, of)
    if draw(st.integers(1, 3)) == 3:
        return Draft(f"put {name}", "PUT", path, query, **payload(draw, (), body))
    checksum = draw(st.sampled_from(["content-md5", "crc32", "sha256", ""]))
    return Draft(f"put {name}", "PUT", path, query, body=body, checksum=checksum)


def _asked(draw: Draw, path: str, name: str, of: str = "") -> Draft:
    return Draft(f"get {name}", "GET", path, odd.joined(name, of), signing=signing(draw))
