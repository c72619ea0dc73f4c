"""Strategies for what is odd in a request: keys and how a path spells them, queries, headers, ranges, preconditions."""

import unicodedata

from hypothesis import strategies as st

PLAIN_KEYS = [b"k", b"key-2", b"dir/x", b"dir/", b"dir"]
_PIECES = [
    b".", b"..", b"/", b"//", b"/./", b"/../", b" ", b"%", b"%25", b"%2F", b"%zz", b"+", b"\n", b"\r\n", b"\t",
    b"\0", b"\x7f",
    b"?", b"#", b"&", b"=", b";", b":", b"@", b"'", b'"', b"<", b">", b"\\", b"*", b"(", b"!", b"~", b"^", b"`", b"{",
    b"a", b"Z", b"0", b"dir/", b"x" * 255, "é".encode(), unicodedata.normalize("NFD", "é").encode(), "日本".encode(),
    "\U0001f600".encode(), "\u0085".encode(), "\u2028".encode(), "\ufffe".encode(), "\ufeff".encode(), b"\xff",
    b"\xc3", b"\xed\xa0\x80",
]  # fmt: skip


def keys() -> st.SearchStrategy[bytes]:
    """Half of them plain; the others have every class of octets somewhere."""
    pieces = st.one_of(st.sampled_from(_PIECES), st.integers(0, 127).map(lambda octet: bytes([octet])))
    odd = st.lists(pieces, min_size=1, max_size=4).map(b"".join).map(lambda key: key[:1024])
    long = st.sampled_from([b"l" * 1024, b"l" * 1025, "é".encode() * 512, b"s/" * 512])
    return st.one_of(st.sampled_from(PLAIN_KEYS), st.sampled_from(PLAIN_KEYS), odd, odd, long)


_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_SUB_DELIMITERS = frozenset(b"!$&'()*+,;=:@")
# Ways to write a key into a path: as the SDKs do, lower-case hex, what RFC 3986 lets stand, everything escaped, slashes too.
SPELLINGS = ["sdk", "sdk", "sdk", "sdk", "lower", "bare", "all", "slash"]


def spell(key: bytes, spelling: str) -> str:
    """The key as it stands in a path."""

    def octet(byte: int) -> str:
        if spelling == "all" or (byte == 0x2F and spelling == "slash"):
            return f"%{byte:02X}"
        if byte in _UNRESERVED or byte == 0x2F or (spelling == "bare" and byte in _SUB_DELIMITERS):
            return chr(byte)
        return f"%{byte:02x}" if spelling == "lower" else f"%{byte:02X}"

    return "".join(map(octet, key))


def quoted(value: bytes) -> str:
    return "".join(chr(b) if b in _UNRESERVED else f"%{b:02X}" for b in value)


RANGES = [
    "bytes=0-0", "bytes=0-", "bytes=1-3", "bytes=-1", "bytes=-0", "bytes=-99999999", "bytes=5-2", "bytes=0-99999999",
    "bytes=99999999-", "bytes=0-1,3-4", "bytes= 0-1", "Bytes=0-1", "items=0-1", "bytes=a-b", "bytes=", "bytes=-",
    "0-1", "",
    "bytes=0-18446744073709551616", "bytes=0 - 1", "bytes=0-1,",
]  # fmt: skip
_DATES = [
    "Thu, 01 Jan 1970 00:00:00 GMT", "Fri, 01 Jan 2100 00:00:00 GMT", "Sat, 01 Jan 2000 00:00:00 GMT", "yesterday", "",
    "Sat, 01 Jan 2000 00:00:00 GMT", "Fri, 01 Jan 2100 00:00:00 GMT",
    "Saturday, 01-Jan-00 00:00:00 GMT", "2000-01-01T00:00:00Z", "Sat, 01 Jan 2000 00:00:00 +0100",
]  # fmt: skip
_TAGS = [
    "{etag:0}",
    '"{etag:0}"',
    '"{etag:1}"',
    "{etag:0}",
    "*",
    '"*"',
    '"none"',
    "none",
    'W/"{etag:0}"',
    '"none", "{etag:0}"',
    "",
    '"d41d8cd98f00b204e9800998ecf8427e"',
]


def conditions(prefix: str = "") -> st.SearchStrategy[tuple[tuple[str, str], ...]]:
    """Any of the four preconditions, together or alone."""
    names = ["match", "none-match", "modified-since", "unmodified-since"]

    def one(name: str) -> st.SearchStrategy[tuple[str, str]]:
        return st.sampled_from(_DATES if "since" in name else _TAGS).map(lambda value: (f"{prefix}if-{name}", value))

    each = st.sampled_from(names).flatmap(one)
    few = st.sampled_from([1, 1, 1, 2, 3])
    return few.flatmap(lambda most: st.lists(each, min_size=1, max_size=most, unique_by=lambda pair: pair[0])).map(tuple)


# Header values are latin-1 text; what is UTF-8 on the wire is written so here.
_VALUES = [
    "v",
    "",
    "two  words",
    " outer ",
    "caf\xe9",
    "café".encode().decode("latin-1"),
    "=?UTF-8?B?w6k=?=",
    "a,b",
    '"q"',
    "x" * 1500,
    "%41",
    "\ttab\t",
]
METADATA = st.lists(
    st.tuples(
        st.sampled_from(["x-amz-meta-a", "X-Amz-Meta-CamelCase", "x-amz-meta-a.b_c", "x-amz-meta-", "x-amz-meta-A"]),
        st.sampled_from(_VALUES),
    ),
    max_size=3,
).map(tuple)
OBJECT_HEADERS = [
    ("Content-Type", "text/plain; charset=utf-8"), ("Content-Type", ""), ("Content-Type", "x"), ("content-type",
    "TEXT/Plain"),
    ("Cache-Control", "no-cache, max-age=0"), ("Content-Disposition", 'attachment; filename="\xe9"'),
    ("Content-Encoding", "gzip"),
    ("Content-Encoding", "gzip, br"), ("Content-Encoding", "identity"), ("Content-Language", "de, en"),
    ("Expires", "Fri, 01 Jan 2100 00:00:00 GMT"), ("Expires", "tomorrow"), ("x-amz-storage-class", "STANDARD"),
    ("x-amz-storage-class", "NONE_SUCH"), ("x-amz-acl", "private"), ("x-amz-acl", "public-read"), ("x-amz-acl",
    "none-such"),
    ("x-amz-tagging", "a=b"), ("x-amz-tagging", "a=1&a=2"), ("x-amz-tagging", "a"), ("x-amz-tagging", ""),
    ("x-amz-tagging", "k%20=%C3%A9"),
    ("x-amz-website-redirect-location", "/other"), ("x-amz-object-lock-mode", "GOVERNANCE"),
    ("x-amz-object-lock-legal-hold", "OFF"),
    ("x-amz-server-side-encryption", "none-such"), ("x-amz-grant-read",
    'uri="http://acs.amazonaws.com/groups/global/AllUsers"'),
    ("x-amz-write-offset-bytes", "0"), ("x-amz-checksum-crc32", "AAAA"), ("x-amz-checksum-sha256", "AAAAAA=="),
    ("x-amz-checksum-xxhash64", "AAAAAAAAAAA="), ("x-amz-trailer", "x-amz-checksum-crc32"),
    ("x-amz-checksum-algorithm", "CRC32"), ("x-amz-sdk-checksum-algorithm",
    "SHA256"),
]  # fmt: skip
# What clients and proxies add without meaning anything by it.
STRAY_HEADERS = [
    ("Origin", "http://example.com"), ("Accept-Encoding", "gzip, deflate"), ("Accept-Encoding", "identity"),
    ("User-Agent", ""),
    ("User-Agent", "x" * 300), ("Referer", "http://example.com/?a=b"), ("Cookie", "a=b"), ("Via", "1.1 somewhere"),
    ("X-Foo", ""),
    ("X-Forwarded-For", "10.0.0.1"), ("Forwarded", "for=10.0.0.1"), ("Accept", "application/xml"), ("X-Amz-Foo", "1"),
    ("x-amz-expected-bucket-owner", "123456789012"), ("x-amz-request-payer", "requester"), ("If-Range", '"x"'),
    ("Cache-Control", "no-cache"),
    ("x-amz-checksum-mode", "ENABLED"), ("amz-sdk-invocation-id", "1"), ("amz-sdk-request", "attempt=1"), ("TE",
    "trailers"),
    ("Connection", "keep-alive"), ("X-Foo", "a"), ("x-foo", "b"), ("Content-Type", "text/plain"),
    ("X-HTTP-Method-Override", "DELETE"),
    ("x-amz-date-2", "x"), ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), ("X-Real-IP",
    "10.0.0.1"),
]  # fmt: skip


def stray(most: int = 2) -> st.SearchStrategy[tuple[tuple[str, str], ...]]:
    return st.one_of(st.just(()), st.lists(st.sampled_from(STRAY_HEADERS), max_size=most).map(tuple))


STRAY_QUERIES = [
    "x-id=GetObject", "foo", "foo=", "foo=bar&foo=baz", "=", "&&", "a=b=c", "%C3%A9=1", "foo=%zz", "foo=a+b",
    "foo=a%2Bb", "foo=%20",
    "Foo=1", "foo=%00", "prefix", "versionId", "batch-get=1", "uploads=1", "Signature=x", "X-Amz-Foo=1", "foo=%FF",
    "acl=1",
]  # fmt: skip
OVERRIDES = [
    "response-content-type=text/html", "response-content-type=",
    "response-content-disposition=attachment%3B%20filename%3D%22%C3%A9%22",
    "response-cache-control=no-store", "response-content-encoding=x", "response-content-language=fr",
    "response-expires=never",
    "response-content-type=a&response-content-type=b", "response-none=such",
]  # fmt: skip
OBJECT_RESOURCES = [
    "acl", "tagging", "torrent", "retention", "legal-hold", "attributes", "restore", "foo", "%61cl", "acl&tagging",
    "Acl", "uploads",
    "uploadId=none", "select&select-type=2", "encryption", "renameObject", "policy", "location", "versioning",
    "annotation",
]  # fmt: skip
BUCKET_RESOURCES = [
    "acl", "location", "versioning", "policy", "policyStatus", "cors", "lifecycle", "lifecycleConfiguration",
    "encryption", "tagging", "website",
    "notification", "logging", "replication", "object-lock", "ownershipControls", "publicAccessBlock",
    "requestPayment", "accelerate",
    "inventory", "inventory&id=x", "metrics&id=x", "analytics&id=x", "intelligent-tiering&id=x", "foo", "session",
    "metadataTable",
    "versions", "uploads", "abac", "usage", "stats",
]  # fmt: skip


def joined(*queries: str) -> str:
    return "&".join(query for query in queries if query)


def stray_query() -> st.SearchStrategy[str]:
    return st.one_of(st.just(""), st.just(""), st.just(""), st.sampled_from(STRAY_QUERIES))
