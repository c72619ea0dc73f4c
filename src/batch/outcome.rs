//! How entries end, and what a batch adds up to. Pure values: the fetch makes them, the encoder writes them.

use std::borrow::Cow;

use http::StatusCode;
use serde::Serialize;

use super::encode::PartHeaders;
use crate::backend::retrying::Failure;
use crate::error::{Kind, code_of_status};
use crate::types::EntryIndex;

/// An entry that ended 4xx or 5xx.
#[derive(Debug)]
pub struct FailedEntry {
    /// The backend's status, or ours.
    pub status: StatusCode,
    /// The S3 code that goes with it.
    pub code: Cow<'static, str>,
    /// One sentence of ours.
    pub message: &'static str,
    /// The backend's headers, where it answered.
    pub headers: PartHeaders,
}

impl FailedEntry {
    /// A failure that the gateway itself found.
    pub fn ours(kind: Kind, message: &'static str) -> Self {
        let status = StatusCode::from_u16(kind.status()).expect("the table of kinds holds statuses");
        Self { status, code: Cow::Borrowed(kind.code()), message, headers: PartHeaders::default() }
    }

    /// The part that a failed read leaves.
    pub fn of(failure: Failure) -> Self {
        match failure {
            Failure::Answered { status, code, headers } => {
                let code = code.map_or_else(|| Cow::Borrowed(code_of_status(status.as_u16())), Cow::Owned);
                Self {
                    status,
                    code,
                    message: "The store answered this entry's read with an error.",
                    headers: PartHeaders::of_failed(&headers),
                }
            }
            Failure::NoCredentials => Self::ours(Kind::ServiceUnavailable, "The gateway has no credentials for the store."),
            Failure::Unavailable => Self::ours(Kind::ServiceUnavailable, "The store cannot be reached, or fails all requests."),
            Failure::Paced => Self::ours(Kind::SlowDown, "The store asks for fewer requests."),
            Failure::DeadlinePassed => Self::ours(Kind::GatewayTimeout, "The store did not answer in time."),
            // A read that lost its object is begun anew by whoever still can; who cannot has no right answer to give.
            Failure::Lying | Failure::Unpinned => Self::ours(Kind::BadGateway, "The store's answer was not what was asked for."),
        }
    }
}

/// What the summary says of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Entries asked for.
    pub entries: u64,
    /// Parts, or members, before the summary.
    pub delivered: u64,
    /// Entries found to have ended 4xx or 5xx, written or not.
    pub failed: u64,
    /// Those of them that failed by a backend's fault or ours, 5xx; with the status and the code of the first. For the log.
    pub faults: u64,
    /// See `faults`.
    pub first_fault: Option<(StatusCode, String)>,
    /// Entries left out.
    pub omitted: u64,
    /// The entry that stopped the batch, with its status and code.
    pub stopped: Option<(EntryIndex, StatusCode, String)>,
    /// Lengths of the delivered parts.
    pub bytes: u64,
    /// Requests to backends.
    pub backend_requests: u64,
    /// Bytes received from backends.
    pub backend_bytes: u64,
    /// Milliseconds since the batch was admitted.
    pub elapsed_ms: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Summary<'a> {
    entries: u64,
    delivered: u64,
    failed: u64,
    omitted: u64,
    stopped_at: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<SummaryError<'a>>,
    bytes: u64,
    backend_requests: u64,
    backend_bytes: u64,
    cache_hits: u64,
    elapsed_ms: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct SummaryError<'a> {
    status: u16,
    code: &'a str,
}

impl Totals {
    /// Counts an entry that ended 4xx or 5xx.
    pub fn count_failed(&mut self, failed: &FailedEntry) {
        self.failed += 1;
        if failed.status.is_server_error() {
            self.faults += 1;
            self.first_fault.get_or_insert_with(|| (failed.status, failed.code.clone().into_owned()));
        }
    }

    /// The summary's JSON.
    pub fn to_json(&self) -> Vec<u8> {
        let stopped = self.stopped.as_ref();
        let summary = Summary {
            entries: self.entries,
            delivered: self.delivered,
            failed: self.failed,
            omitted: self.omitted,
            stopped_at: stopped.map(|(index, ..)| index.0),
            error: stopped.map(|(_, status, code)| SummaryError { status: status.as_u16(), code }),
            bytes: self.bytes,
            backend_requests: self.backend_requests,
            backend_bytes: self.backend_bytes,
            cache_hits: 0,
            elapsed_ms: self.elapsed_ms,
        };
        serde_json::to_vec(&summary).expect("numbers and strings are JSON")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_has_the_contracts_members() {
        let mut totals = Totals { entries: 3, delivered: 2, failed: 1, ..Totals::default() };
        let json = |t: &Totals| String::from_utf8(t.to_json()).expect("text");
        assert_eq!(
            json(&totals),
            r#"{"Entries":3,"Delivered":2,"Failed":1,"Omitted":0,"StoppedAt":null,"Bytes":0,"BackendRequests":0,"BackendBytes":0,"CacheHits":0,"ElapsedMs":0}"#
        );
        totals.stopped = Some((EntryIndex(1), StatusCode::NOT_FOUND, "NoSuchKey".into()));
        assert!(json(&totals).contains(r#""StoppedAt":1,"Error":{"Status":404,"Code":"NoSuchKey"},"#));
    }
}
