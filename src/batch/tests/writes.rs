//! Writes of a simulated store: PUT, conditional or not, and DELETE. What enters is a forwarded request whose [`JOB`] numbers
//! it, or a step of an upload in parts ([`super::uploads`]); a PUT brings [`content`] of its own generation, which `x-amz-meta-generation` says. Invariant: an object is stored only if
//! all of its body has arrived.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use tokio::time::sleep;

use crate::backend::{Attempt, BackendErrorKind, Body, ReadAsk, empty_body, full_body};

use super::objects::{Object, content, refusal};
use super::store::{Act, SimStore, Waiting, failed, job_of, unless_reset};

/// Header that says which generation a PUT brings.
pub const GENERATION: &str = "x-amz-meta-generation";

impl SimStore {
    pub(super) async fn write(&self, request: Request<Body>, ask: &ReadAsk) -> Attempt {
        let key = ask.key.as_str();
        let asker = (job_of(request.headers()), key.to_owned());
        let step = self.next_step(&asker, true, Act::of_write);
        let _waiting = Waiting::new(self, &asker, false);
        let work = async {
            let (head, body) = request.into_parts();
            match step.act {
                Act::Unreachable => return failed(BackendErrorKind::Unreachable),
                Act::Garbled => return failed(BackendErrorKind::Garbled),
                _ => {}
            }
            let length = number(&head.headers, header::CONTENT_LENGTH.as_str()).unwrap_or(0) as usize;
            let most = if step.act == Act::HalfArrives { length / 2 } else { usize::MAX };
            let Some(bytes) = arrived(body, most).await else { return failed(BackendErrorKind::RequestBody) };
            sleep(Duration::from_millis(step.head_ms)).await;
            match step.act {
                Act::Reset | Act::HalfArrives => return failed(BackendErrorKind::NoAnswer),
                Act::Silent => std::future::pending().await,
                Act::Status(status, code) => return Ok(told(refusal(StatusCode::from_u16(status).expect("valid"), code))),
                _ if bytes.len() != length => {
                    self.is_wrong(format!("{} bytes of {length} of {asker:?}, and no break", bytes.len()));
                    return Ok(told(refusal(StatusCode::BAD_REQUEST, "IncompleteBody")));
                }
                _ => {}
            }
            if head.uri.query().is_some() {
                let answer = self.upload_step(&head, key, bytes);
                sleep(Duration::from_millis(step.head_ms)).await;
                return answered(step.act, answer).await;
            }
            let before = self.object(key);
            if !holds(&head.headers, before.as_ref()) {
                return Ok(told(refusal(StatusCode::PRECONDITION_FAILED, "PreconditionFailed")));
            }
            let after = (head.method == Method::PUT).then(|| {
                let generation = generation(&head.headers);
                if bytes != content(key, generation, length) {
                    self.is_wrong(format!("the bytes of {asker:?} are not those that were sent"));
                }
                Object { generation, ..Object::of(length) }
            });
            self.carry_out(asker.0, key, after.clone());
            sleep(Duration::from_millis(step.head_ms)).await;
            answered(step.act, done(after)).await
        };
        unless_reset(self.next_reset(key), work).await
    }
}

/// How a write that was carried out is answered.
async fn answered(act: Act, answer: Response<Body>) -> Attempt {
    match act {
        Act::LostAnswer => failed(BackendErrorKind::NoAnswer),
        Act::SilentAfterWrite => std::future::pending().await,
        _ => Ok(answer),
    }
}

pub(super) fn generation(headers: &HeaderMap) -> u32 {
    number(headers, GENERATION).expect("every write says what it brings")
}

fn number(headers: &HeaderMap, name: &str) -> Option<u32> {
    headers.get(name).and_then(|value| value.to_str().ok()).and_then(|text| text.parse().ok())
}

/// What arrives of a body, up to `most` bytes and a frame; nothing if it broke.
async fn arrived(mut body: Body, most: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    while bytes.len() < most {
        match body.frame().await {
            Some(Ok(frame)) => bytes.extend_from_slice(&frame.into_data().unwrap_or_default()),
            Some(Err(_)) => return None,
            None => break,
        }
    }
    Some(bytes)
}

/// Whether the preconditions of a write hold.
fn holds(headers: &HeaderMap, object: Option<&Object>) -> bool {
    let none_match = headers.get(header::IF_NONE_MATCH).is_none_or(|_| object.is_none());
    let if_match = headers.get(header::IF_MATCH);
    none_match && if_match.is_none_or(|tag| object.is_some_and(|object| tag.as_bytes() == object.etag().as_bytes()))
}

pub(super) fn told((status, headers, body): (StatusCode, HeaderMap, Vec<u8>)) -> Response<Body> {
    let mut response = Response::new(full_body(body));
    (*response.status_mut(), *response.headers_mut()) = (status, headers);
    response
}

fn done(object: Option<Object>) -> Response<Body> {
    let mut response = Response::new(empty_body());
    match object {
        Some(object) => {
            let etag = HeaderValue::from_str(&object.etag()).expect("visible");
            response.headers_mut().insert(header::ETAG, etag);
        }
        None => *response.status_mut() = StatusCode::NO_CONTENT,
    }
    response
}
