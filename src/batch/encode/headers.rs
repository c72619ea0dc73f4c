//! What a part keeps of the headers that a store's answer had: all that the lone read would have, except what belongs to the
//! connection, to the store's own request or to us. Pure: a map in, lines out.

use bytes::BufMut;
use http::{HeaderMap, HeaderName, header};

/// Headers of a backend's answer that have no place in a part, besides those that its `Connection` names.
const DROPPED: &[&str] = &[
    "connection",
    "content-id",
    "content-length",
    "date",
    "keep-alive",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-amz-id-2",
    "x-amz-request-id",
    "x-batchgate-request-id",
];

/// Headers that describe a body which a failed part replaces by ours.
const OF_REPLACED_BODY: &[&str] = &["content-encoding", "content-language", "content-md5", "content-type"];

/// Prefixes of headers that have no place in a part: `batch-` is ours, `proxy-` belongs to the connection, and the last one says
/// which account of a SeaweedFS owns the object, which is the gateway's.
const DROPPED_PREFIXES: &[&str] = &["batch-", "proxy-", "seaweed-x-amz-"];

/// The headers of a store's answer as they stand in a part. Octets of their own: a header that hyper gave keeps the whole
/// buffer alive that it was read into, and an entry may have to wait for its turn.
#[derive(Debug, Default)]
pub struct PartHeaders(Vec<u8>);

impl PartHeaders {
    /// Those of an entry whose body is the store's.
    pub fn of(headers: &HeaderMap) -> Self {
        Self::filtered(headers, |_| true)
    }

    /// Those of an entry whose body is an error of ours.
    pub fn of_failed(headers: &HeaderMap) -> Self {
        Self::filtered(headers, |name| !OF_REPLACED_BODY.contains(&name) && !name.starts_with("x-amz-checksum-"))
    }

    /// How many octets they have.
    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// Their lines, each with its end.
    pub(super) fn lines(&self) -> &[u8] {
        &self.0
    }

    /// The value of the first that is called `name`, which must be in lower case.
    pub(super) fn get<'a>(&'a self, name: &str) -> Option<&'a [u8]> {
        let value = |line: &'a [u8]| line.strip_prefix(name.as_bytes())?.strip_prefix(b": ")?.strip_suffix(b"\r");
        self.0.split(|octet| *octet == b'\n').find_map(value)
    }

    fn filtered(headers: &HeaderMap, wanted: impl Fn(&str) -> bool) -> Self {
        let hop_by_hop: Vec<&str> = headers
            .get_all(header::CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(',').map(str::trim))
            .collect();
        let kept = |name: &HeaderName| {
            let name = name.as_str();
            let dropped = DROPPED.contains(&name) || DROPPED_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
            !dropped && wanted(name) && !hop_by_hop.iter().any(|hop| hop.eq_ignore_ascii_case(name))
        };
        let kept = || headers.iter().filter(|(name, _)| kept(name));
        let length = kept().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        let mut out = Vec::with_capacity(length);
        kept().for_each(|(name, value)| line(&mut out, name.as_str().as_bytes(), value.as_bytes()));
        Self(out)
    }
}

/// Writes one header line.
pub(super) fn line(out: &mut impl BufMut, name: &[u8], value: &[u8]) {
    out.put_slice(name);
    out.put_slice(b": ");
    out.put_slice(value);
    out.put_slice(b"\r\n");
}
