//! What an S3 request is about, read off its URI: the bucket and the key, decoded for judging, and the raw path for signing
//! and forwarding. The raw form is never rebuilt from the decoded one.

/// Bucket and key of a request, whatever the addressing style was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct S3Target {
    /// The bucket's name as the client knows it; nothing on the service level (`ListBuckets`).
    pub bucket: Option<String>,
    /// The key, percent-decoded once; nothing on the service and bucket levels.
    pub key: Option<Vec<u8>>,
    /// The key as it stood in the path, still encoded and without the slash before it; empty where there is none.
    pub raw_key: String,
    /// The whole path as it came, without the base path of the endpoint.
    pub path: String,
    /// The bucket was named by the host, and not by the path.
    pub bucket_in_host: bool,
}

/// Percent-decodes `text` once; a `%` that no two hex digits follow stays as it is.
pub fn percent_decode(text: &str) -> Vec<u8> {
    percent_encoding::percent_decode_str(text).collect()
}

/// The name-value pairs of a raw query, still encoded. A name without `=` has an empty value.
pub fn query_pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_value_is_a_pair() {
        let pairs: Vec<_> = query_pairs("batch-get&a=b=c&&d=").collect();
        assert_eq!(pairs, [("batch-get", ""), ("a", "b=c"), ("d", "")]);
    }

    #[test]
    fn decoding_happens_once() {
        assert_eq!(percent_decode("100%2525.txt"), b"100%25.txt");
        assert_eq!(percent_decode("100%.txt"), b"100%.txt");
    }
}
