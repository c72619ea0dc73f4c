//! The store as a whole, asked as a gateway asks it: requests in, answers out, and the memory that is taken meanwhile. What the
//! parts do by themselves is tested beside them.

mod conditions;
mod memory;
mod multipart;
mod objects;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use http_body_util::BodyExt;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::{EmbeddedStore, Key};
use crate::backend::{Attempt, BackendErrorKind, Body, Forward, ObjectRead, ReadAsk, Sender, full_body, s3};
use crate::config::BackendConfig;
use crate::telemetry::Metrics;

/// Sun, 06 Nov 1994 08:49:37 GMT.
fn then() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(784_111_777)
}

fn store_of(memory_bytes_max: u64) -> EmbeddedStore {
    let metrics = Metrics::new();
    let config = BackendConfig { memory_bytes_max, ..BackendConfig::embedded("store") };
    EmbeddedStore::new(&config, then, SmallRng::seed_from_u64(1), metrics.backend("store"), &metrics.stored("store"))
}

/// A store with the bucket `bucket`.
async fn store() -> EmbeddedStore {
    let store = store_of(64 << 20);
    assert_eq!(ask(&store, "PUT", "/bucket", &[], b"").await.status, 200);
    store
}

/// An answer that is here as a whole.
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().expect("text")).unwrap_or_default()
    }

    /// The code of an error.
    fn code(&self) -> String {
        s3::error_code(&self.body).unwrap_or_default()
    }

    /// The texts of every element of that name.
    fn texts(&self, name: &str) -> Vec<String> {
        let body = String::from_utf8(self.body.to_vec()).expect("text");
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        body.split(&open).skip(1).map(|rest| rest.split(&close).next().expect("closed").to_owned()).collect()
    }
}

async fn whole(response: Response<Body>) -> Answer {
    let (head, body) = response.into_parts();
    let body = body.collect().await.expect("memory does not break").to_bytes();
    Answer { status: head.status.as_u16(), headers: head.headers, body }
}

fn request(method: &str, uri: &str, headers: &[(&'static str, &str)], body: Body) -> Request<Body> {
    let mut request = Request::new(body);
    *request.method_mut() = Method::from_bytes(method.as_bytes()).expect("a method");
    *request.uri_mut() = uri.parse().expect("a URI");
    for (name, value) in headers {
        request.headers_mut().append(HeaderName::from_static(name), HeaderValue::from_str(value).expect("a value"));
    }
    request
}

async fn ask(store: &EmbeddedStore, method: &str, uri: &str, headers: &[(&'static str, &str)], body: &[u8]) -> Answer {
    let request = request(method, uri, headers, full_body(body.to_vec()));
    whole(store.forward(request).await.expect("an answer")).await
}

async fn get(store: &EmbeddedStore, uri: &str, headers: &[(&'static str, &str)]) -> Answer {
    ask(store, "GET", uri, headers, b"").await
}

async fn put(store: &EmbeddedStore, uri: &str, body: &[u8]) -> Answer {
    ask(store, "PUT", uri, &[], body).await
}
