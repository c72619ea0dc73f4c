//! POST Object, the upload of a browser's form, on its way to the store and back. In: a form whose file has begun, and the policy
//! that its signer wrote; out: the same form as the gateway's own, and the store's answer without the store's address. What is
//! held is the part before the file, paid for from the byte budget; the file streams.
//!
//! Invariant: the store gets each field that was judged, none that was not, and the key that was judged. It checks the same
//! conditions again, and answers.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode, Version, header};
use http_body_util::BodyExt;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rand::Rng;

use super::deletes::Reserved;
use super::{Ask, Passthrough, headers, rewrite};
use crate::auth::Scheme;
use crate::auth::form::policy::OF_THE_SIGNER;
use crate::auth::form::{self, Begun, FileBody, Form, PostPolicy};
use crate::backend::form::PostForm;
use crate::backend::s3::object_path;
use crate::backend::{Body, BoxError, full_body};
use crate::error::xml::element;
use crate::error::{Error, Kind, Result};
use crate::route::host;

/// What stores leave as it is in a page's query, which names of buckets are made of.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Longest answer that tells where the object is: S3's has a key, twice, and a few names.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The headers beside a form that go on: who asks, from where, and on what condition. All others, some stores would keep as the
/// object's own, though no policy was asked for them: what a form says of its object is in its fields.
const BESIDE: &[&str] = &[
    "accept",
    "accept-encoding",
    "accept-language",
    "baggage",
    "if-match",
    "if-none-match",
    "origin",
    "referer",
    "traceparent",
    "tracestate",
    "user-agent",
];

/// A form whose file has begun, with what it holds of the byte budget.
pub struct HeldForm<'a> {
    begun: Begun<Body>,
    _reserved: Reserved<'a>,
}

impl HeldForm<'_> {
    /// The fields.
    pub fn form(&self) -> &Form {
        &self.begun.form
    }
}

impl Passthrough {
    /// Reads a form up to its file.
    ///
    /// # Errors
    /// `SlowDown` if no memory is free; `AccessDenied` for a header that only a signature could justify; those of
    /// [`form::begin`].
    pub async fn hold_form(&self, head: &Parts, body: Body) -> Result<HeldForm<'_>> {
        let mut forwarded = head.headers.clone();
        headers::strip_request(&mut forwarded);
        if let Some(name) = forwarded.keys().find(|name| name.as_str().starts_with("x-amz-")) {
            return Err(Error::new(Kind::AccessDenied, format!("The header {name} is present in the request but not signed.")));
        }
        if forwarded.contains_key("content-md5") {
            // It is that of the client's form, which is not the form that is sent.
            return Err(Error::new(Kind::NotImplemented, "Content-MD5 of a form is not checked; leave it out."));
        }
        let mut reserved = Reserved::nothing(&self.memory);
        let begun = form::begin(&head.headers, body, &mut reserved).await?;
        Ok(HeldForm { begun, _reserved: reserved })
    }

    /// Authorises an upload of `key` under `policy` and forwards it. One of nobody's has no policy; whether it is allowed is for the
    /// store to say.
    pub async fn form(&self, ask: Ask<'_>, held: HeldForm<'_>, policy: Option<PostPolicy>, key: &str) -> Result<Response<Body>> {
        let bucket = ask.target.bucket.as_deref().unwrap_or_default();
        let HeldForm { begun, _reserved } = held;
        let needed = begun.form.permissions(bucket, key)?;
        if policy.is_some() || ask.authenticated.scheme != Scheme::Nobody {
            ask.authenticated.identity.authorise(&needed)?;
        }
        let mut route = self.route(&ask)?;
        let name = self.routes.find(bucket).map_or(bucket, |(_, name)| name);
        let redirect = page(&begun.form)?;
        let boundary = format!("{:032x}", route.backend.random().random::<u128>());
        let form = to_send(&begun.form, policy.as_ref(), name, key, boundary);
        let lengths = policy.as_ref().map_or(0..=u64::MAX, PostPolicy::lengths);
        let (body, verdict) = FileBody::new(begun, lengths, &form.boundary)?;
        let mut headers = self.request_headers(&ask, &mut route)?;
        let others: Vec<_> = headers.keys().filter(|name| !BESIDE.contains(&name.as_str())).cloned().collect();
        others.iter().for_each(|name| drop(headers.remove(name)));
        headers.insert(header::CONTENT_TYPE, form.content_type());
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.bytes()));
        route.form = Some(form);
        let body = Body::new(body.map_err(BoxError::from));
        let response = self.send(&ask, &route, headers, body, &verdict).await?;
        if let Some(url) = redirect.filter(|_| response.status() == StatusCode::SEE_OTHER) {
            let mut response = redirected(response, &url, (name, bucket))?;
            self.show_own_region(response.headers_mut());
            return Ok(response);
        }
        let stored = response.status().is_success();
        let (is_created, url) = (response.status() == StatusCode::CREATED, url(&ask, bucket, key));
        let backend = Arc::clone(&route.backend);
        let mut response = self.finish(&ask, route, response).await?;
        if stored && response.headers().contains_key(header::LOCATION) {
            response.headers_mut().insert(header::LOCATION, HeaderValue::from_str(&url).map_err(|e| internal(e.into()))?);
        }
        match is_created {
            true => created(response, bucket, &url).await.map_err(ask.of_backend(&backend.name)),
            false => Ok(response),
        }
    }
}

fn internal(source: BoxError) -> Error {
    Error::new(Kind::InternalError, "the gateway failed; this is its fault").with_source(source)
}

/// The page that the form sends the browser on to, if it names one; what a header cannot hold must not be found out afterwards.
fn page(form: &Form) -> Result<Option<String>> {
    let Some(name) = ["success_action_redirect", "redirect"].into_iter().find(|name| form.get(name).is_some()) else {
        return Ok(None);
    };
    let url = form.text(name)?.filter(|url| HeaderValue::from_bytes(url.as_bytes()).is_ok());
    let unfit = || Error::new(Kind::InvalidArgument, format!("The form's field {name} is no URL."));
    url.map(|url| Some(url.to_owned())).ok_or_else(unfit)
}

/// The form as the store gets it.
fn to_send(form: &Form, policy: Option<&PostPolicy>, bucket: &str, key: &str, boundary: String) -> PostForm {
    let fields = form.fields.iter().filter_map(|field| match field.name.to_ascii_lowercase().as_str() {
        // Some clients name it; the store knows it by this name.
        "bucket" => Some((field.name.clone(), Bytes::copy_from_slice(bucket.as_bytes()))),
        "key" => Some((field.name.clone(), Bytes::copy_from_slice(key.as_bytes()))),
        name if OF_THE_SIGNER.contains(&name) => None,
        _ => Some((field.name.clone(), field.value.clone())),
    });
    PostForm {
        boundary,
        bucket: bucket.to_owned(),
        expiration: policy.map(|policy| policy.expiration.clone()).unwrap_or_default(),
        conditions: policy.map(PostPolicy::conditions_for_store).unwrap_or_default(),
        fields: fields.collect(),
        file_name: form.file_name.clone(),
        file_type: form.file_type.clone(),
    }
}

/// Where the object is for the client.
fn url(ask: &Ask<'_>, bucket: &str, key: &str) -> String {
    let scheme = if ask.secure { "https" } else { "http" };
    let path = object_path(bucket, key, None);
    // By host the path names no bucket.
    let path = if ask.target.bucket_in_host { &path[1 + bucket.len()..] } else { path.as_str() };
    let base = ask.head.uri.path().strip_suffix(ask.target.path.as_str()).unwrap_or_default();
    format!("{scheme}://{}{base}{path}", host(ask.head).unwrap_or_default())
}

/// The answer that sends the browser on to the page that the form names, and no other. The store tells that page of the bucket, by
/// the first of `names`; the client knows it by the second.
fn redirected(mut response: Response<Body>, url: &str, names: (&str, &str)) -> Result<Response<Body>> {
    *response.version_mut() = Version::HTTP_11;
    headers::strip_answer(response.headers_mut());
    let location = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let page = |url: &str| url.split(['?', '#']).next().unwrap_or_default().to_owned();
    let location = match location.split_once('?') {
        Some((at, query)) if at == page(url) => {
            let named = |name: &str| format!("bucket={}", utf8_percent_encode(name, UNRESERVED));
            let pairs = query.split('&').map(|pair| match pair.strip_prefix("bucket=") {
                Some(name) if percent_encoding::percent_decode_str(name).eq(names.0.bytes()) => named(names.1),
                _ => pair.to_owned(),
            });
            format!("{at}?{}", pairs.collect::<Vec<_>>().join("&"))
        }
        // It spells the page in its own way.
        _ => url.to_owned(),
    };
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_bytes(location.as_bytes()).map_err(|e| internal(e.into()))?);
    Ok(response)
}

/// The document that tells where the object is, in the client's words.
async fn created(response: Response<Body>, bucket: &str, url: &str) -> Result<Response<Body>> {
    let (mut head, body) = response.into_parts();
    let document = rewrite::whole(body, ANSWER_BYTES_MAX).await?;
    let text = String::from_utf8_lossy(&document).into_owned();
    let text = replaced(&replaced(&text, "Location", url), "Bucket", bucket);
    head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(text.len()));
    Ok(Response::from_parts(head, full_body(text)))
}

/// `document` with `value` in the first element called `name`, if it has one.
fn replaced(document: &str, name: &str, value: &str) -> String {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let mut new = String::new();
    element(&mut new, name, value);
    match document.split_once(&open).and_then(|(before, rest)| Some((before, rest.split_once(&close)?.1))) {
        Some((before, behind)) => format!("{before}{new}{behind}"),
        None => document.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::empty_body;

    fn location_of(store_says: &str, url: &str) -> String {
        let mut response = Response::new(empty_body());
        response.headers_mut().insert("location", HeaderValue::from_str(store_says).expect("valid"));
        let response = redirected(response, url, ("there", "h-e.r_e")).expect("a page");
        response.headers()["location"].to_str().expect("text").to_owned()
    }

    #[test]
    fn a_form_leads_to_its_own_page_and_no_other() {
        let page = "http://site/done";
        assert_eq!(
            location_of("http://site/done?bucket=there&key=there&etag=%22e%22", page),
            "http://site/done?bucket=h-e.r_e&key=there&etag=%22e%22"
        );
        assert_eq!(location_of("http://10.0.0.1:8333/there/k", page), page);
        assert_eq!(location_of("http://evil/?bucket=there", page), page);
        assert_eq!(location_of("http://site/done?a=1&bucket=other", "http://site/done?a=1"), "http://site/done?a=1&bucket=other");
        let form = |value: &'static str| Form {
            fields: vec![form::Field { name: "Redirect".to_owned(), value: Bytes::from_static(value.as_bytes()) }],
            ..Form::default()
        };
        assert_eq!(super::page(&form(page)).expect("a page").as_deref(), Some(page));
        assert_eq!(super::page(&form("http://site/\r\nx: y")).expect_err("two headers").kind, Kind::InvalidArgument);
        assert_eq!(super::page(&Form::default()).expect("none"), None);
    }

    #[tokio::test]
    async fn what_was_created_is_told_in_the_clients_words() {
        let answer =
            "<PostResponse><Location>http://10.0.0.1/there/k</Location><Bucket>there</Bucket><Key>there</Key></PostResponse>";
        let response = created(Response::new(full_body(answer)), "here", "http://gate/here/a&b").await.expect("short");
        let length = response.headers()["content-length"].to_str().expect("text").parse::<usize>().expect("a number");
        let body = response.into_body().collect().await.expect("whole").to_bytes();
        assert_eq!(length, body.len());
        assert_eq!(
            body,
            "<PostResponse><Location>http://gate/here/a&amp;b</Location><Bucket>here</Bucket><Key>there</Key></PostResponse>"
        );
        assert_eq!(replaced("<Location/>", "Location", "x"), "<Location/>");
    }
}
