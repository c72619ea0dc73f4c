//! What nobody signed goes to its store as it is, with no signature either: what the store lets anybody do is for the store to say.
//! In: a request without a signature; out: the store's answer.
//!
//! Invariant: nothing of it is taken apart or checked here, and nothing that the store could take for signed in its body is sent.

use http::{HeaderMap, Method, Response, header};

use super::deletes::Reserved;
use super::upload::{self, Carried};
use super::{Ask, Passthrough};
use crate::auth::permissions;
use crate::backend::Body;
use crate::config::{Checksums, PayloadSigning, Quirks};
use crate::error::{Error, Kind, Result};
use crate::types::{percent_decode, query_pairs};

/// What a request says of its body.
const CONTENT_SHA256: &str = "x-amz-content-sha256";

/// The type of a form.
const FORM: &[u8] = b"multipart/form-data";

/// The operations by POST that every store knows by their query, whatever the type of the body.
const KNOWN_BY_QUERY: &[&[u8]] = &[b"delete", b"uploadId", b"uploads"];

impl Passthrough {
    /// Forwards a request without a signature.
    pub(super) async fn answer_nobody(&self, ask: Ask<'_>, body: Body) -> Result<Response<Body>> {
        let query = ask.head.uri.query().unwrap_or_default();
        check_form(&ask.head.method, &ask.head.headers, None)?;
        let needed = permissions(&ask.head.method, ask.target, query, &ask.head.headers)?;
        if self.is_merged_list(&ask, &needed)? {
            return self.list_buckets(ask, body).await;
        }
        let mut route = self.route(&ask)?;
        let mut headers = self.request_headers(&ask, &mut route)?;
        let quirks = as_it_is(route.backend.quirks);
        let carried = Carried::of(&ask.head.method, !ask.target.raw_key.is_empty(), query);
        let mut held = Reserved::nothing(&self.memory);
        let payload = ask.authenticated.payload.clone();
        let (body, verdict) = upload::prepare(payload, carried, quirks, &mut headers, body, &mut held).await?;
        match ask.head.headers.get(CONTENT_SHA256) {
            Some(said) => drop(headers.insert(CONTENT_SHA256, said.clone())),
            None => drop(headers.remove(CONTENT_SHA256)),
        }
        let response = self.send(&ask, &route, headers, body, &verdict).await?;
        self.finish(&ask, route, response).await
    }
}

/// Without a signature of the head there is none for chunks to go on from; and a body that may be framed goes on so, with all that
/// its head says of it, which is not of the octets that are here.
fn as_it_is(quirks: Quirks) -> Quirks {
    Quirks { payload_signing: PayloadSigning::WhenKnown, checksums: Checksums::Forward, ..quirks }
}

/// Refuses a POST that a store could take for a form where it is none here: the store would ask the form's own signature, or none,
/// of the bucket's rules, and no policy was asked for what is in it. `signed` is the query of a request whose head is signed.
///
/// # Errors
/// `InvalidRequest`.
pub fn check_form(method: &Method, headers: &HeaderMap, signed: Option<&str>) -> Result<()> {
    let says_so = |value: &[u8]| value.windows(FORM.len()).any(|part| part.eq_ignore_ascii_case(FORM));
    // Stores differ in which of several they read, and some look for the words anywhere.
    if method != Method::POST || !headers.get_all(header::CONTENT_TYPE).iter().any(|value| says_so(value.as_bytes())) {
        return Ok(());
    }
    let known = |(name, _): (&str, &str)| KNOWN_BY_QUERY.contains(&percent_decode(name).as_slice());
    if signed.is_some_and(|query| query_pairs(query).any(known)) {
        return Ok(());
    }
    let message =
        "a form (Content-Type: multipart/form-data) is sent to a bucket, without a query, and signed in its fields or not at all";
    Err(Error::new(Kind::InvalidRequest, message))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_post_that_a_store_could_take_for_a_form_is_refused() {
        let is_fine = |method: Method, types: &[&'static str], signed: Option<&str>| {
            let mut headers = HeaderMap::new();
            for value in types {
                headers.append(header::CONTENT_TYPE, HeaderValue::from_static(value));
            }
            check_form(&method, &headers, signed).map_err(|error| assert_eq!(error.kind, Kind::InvalidRequest)).is_ok()
        };
        let form = "Multipart/Form-DATA; boundary=b";
        for types in [
            &[form][..],
            &["text/plain", form],
            &[form, "text/plain"],
            &["text/plain, multipart/form-data"],
            &[" multipart/form-data"],
        ] {
            for signed in [None, Some(""), Some("x"), Some("restore"), Some("x=uploads&select&select-type=2")] {
                assert!(!is_fine(Method::POST, types, signed), "{types:?} {signed:?}");
            }
            for signed in ["delete", "uploads=", "a&upload%49d=1"] {
                assert!(is_fine(Method::POST, types, Some(signed)), "{types:?} {signed}");
            }
            assert!(is_fine(Method::PUT, types, None), "an object of that type");
        }
        for types in [&[][..], &["text/plain"], &["multipart/mixed", "form-data"]] {
            assert!(is_fine(Method::POST, types, None) && is_fine(Method::POST, types, Some("x")), "{types:?}");
        }
    }

    #[tokio::test]
    async fn what_nobody_signed_keeps_its_frame_and_all_that_is_said_of_it() {
        use crate::auth::Payload;
        use crate::backend::full_body;
        use crate::budget::Pool;
        use http_body_util::BodyExt;
        let said = [
            ("content-encoding", "aws-chunked"),
            ("content-length", "46"),
            ("x-amz-checksum-crc32", "AAAAAA=="),
            ("x-amz-decoded-content-length", "5"),
            ("x-amz-sdk-checksum-algorithm", "CRC32"),
            ("x-amz-trailer", "x-amz-checksum-crc32"),
        ];
        let framed = "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n";
        let quirks = Quirks { checksums: Checksums::Verify, payload_signing: PayloadSigning::Always, ..Quirks::default() };
        let mut headers: HeaderMap =
            said.iter().map(|(n, v)| (http::HeaderName::from_static(n), HeaderValue::from_static(v))).collect();
        let pool = Pool::new(1 << 20, None);
        let mut held = Reserved::nothing(&pool);
        let prepared =
            upload::prepare(Payload::Unsigned, Carried::Data, as_it_is(quirks), &mut headers, full_body(framed), &mut held);
        let (body, verdict) = prepared.await.expect("nothing is checked");
        assert_eq!(body.collect().await.expect("nothing is checked").to_bytes(), framed);
        assert!(verdict.failure().is_none());
        headers.remove(CONTENT_SHA256);
        assert!(said.iter().all(|(name, value)| headers[*name] == *value) && headers.len() == said.len(), "{headers:?}");
    }
}
