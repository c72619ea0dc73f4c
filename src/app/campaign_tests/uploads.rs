//! Uploads in parts, step by step as clients do them, and what they were told of each step: it is sent once, carried out once at
//! the most, and whoever says that its outcome is unknown says so only where it is.

use std::time::Duration;

use http::{Method, Request, header};
use tokio::time::Instant;

use super::clients::{Gateway, Got, Outcome};
use super::judge::Judge;
use super::world::{Job, What};
use crate::backend::{empty_body, full_body};
use crate::batch::tests::Client;
use crate::batch::tests::objects::{Object, SECRET, content};
use crate::batch::tests::store::JOB;
use crate::batch::tests::writes::GENERATION;

/// Steps have numbers of their own: that of their job, and this for each step up to them.
const STEPS: u32 = 1_000_000;

/// A POST, so many PUTs of parts, and a POST or a DELETE.
#[derive(Clone, Debug)]
pub(super) struct Upload {
    pub key: String,
    pub generation: u32,
    pub parts: Vec<usize>,
    pub aborts: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Create,
    /// From this part on, counted from 0.
    Part(usize),
    Complete,
    Abort,
}

impl Upload {
    fn length(&self) -> usize {
        self.parts.iter().sum()
    }

    fn object(&self) -> Object {
        Object { generation: self.generation, ..Object::of(self.length()) }
    }
}

impl Gateway {
    /// All steps, as far as they succeed. One that fails ends the upload: it is aborted, unless it may have been completed.
    pub(super) async fn upload(&self, number: u32, upload: &Upload) -> (Instant, Got) {
        let mut steps = vec![self.step(number + STEPS, upload, Step::Create, "").await];
        let Some(id) = steps[0].id() else { return (Instant::now(), Got::Steps(steps)) };
        let last = if upload.aborts { Step::Abort } else { Step::Complete };
        for step in (0..upload.parts.len()).map(Step::Part).chain([last]) {
            let number = number + STEPS * (steps.len() as u32 + 1);
            let done = self.step(number, upload, step, &id).await;
            let (succeeded, unknown) = (done.succeeded(), done.is_unknown());
            steps.push(done);
            if !succeeded {
                if matches!(step, Step::Part(_)) || (step == Step::Complete && !unknown) {
                    steps.push(self.step(number + STEPS, upload, Step::Abort, &id).await);
                }
                break;
            }
        }
        (Instant::now(), Got::Steps(steps))
    }

    async fn step(&self, number: u32, upload: &Upload, step: Step, id: &str) -> Outcome {
        let started = Instant::now();
        let (method, query, bytes) = match step {
            Step::Create => (Method::POST, "uploads".to_owned(), Vec::new()),
            Step::Part(at) => {
                let from: usize = upload.parts[..at].iter().sum();
                let whole = content(&upload.key, upload.generation, upload.length());
                (Method::PUT, format!("partNumber={}&uploadId={id}", at + 1), whole[from..from + upload.parts[at]].to_vec())
            }
            Step::Complete => (Method::POST, format!("uploadId={id}"), b"<CompleteMultipartUpload/>".to_vec()),
            Step::Abort => (Method::DELETE, format!("uploadId={id}"), Vec::new()),
        };
        let request = Request::builder().method(method).uri(format!("/b/{}?{query}", upload.key)).header(JOB, number);
        let request = request.header(header::HOST, "gateway").header(GENERATION, upload.generation);
        let request = request.header(header::CONTENT_LENGTH, bytes.len());
        let body = if bytes.is_empty() { empty_body() } else { full_body(bytes) };
        let (headed, got) = self.plain(request.body(body).expect("valid"), Client::Eager).await;
        let job = Job { at: Duration::ZERO, number, what: What::Step(upload.clone(), step) };
        Outcome { job, started, headed, ended: Instant::now(), got }
    }
}

impl Outcome {
    fn succeeded(&self) -> bool {
        matches!(&self.got, Got::Plain(plain) if plain.status < 300)
    }

    fn is_unknown(&self) -> bool {
        matches!(&self.got, Got::Failed { message, .. } if message.contains("unknown"))
    }

    /// The id of an upload that was begun.
    fn id(&self) -> Option<String> {
        let Got::Plain(plain) = &self.got else { return None };
        let text = String::from_utf8_lossy(&plain.bytes);
        Some(text.split_once("<UploadId>")?.1.split_once('<')?.0.to_owned())
    }
}

impl Judge<'_> {
    /// What a client was told of one step.
    pub(super) fn step(&self, outcome: &Outcome) -> Result<(), String> {
        let What::Step(upload, step) = &outcome.job.what else { return Err("no step".into()) };
        let wrong = |what: String| Err(format!("{step:?}: {what}; met {:?}", self.met(outcome)));
        self.plain_in_time(outcome, Duration::ZERO)?;
        let (sent, carried) = (self.met(outcome).len(), self.carried(outcome));
        if sent > 1 || carried > 1 {
            return wrong(format!("it was sent {sent} times and carried out {carried} times"));
        }
        match &outcome.got {
            Got::Plain(plain) if outcome.succeeded() => {
                let text = String::from_utf8_lossy(&plain.bytes);
                let location = format!("<Location>https://gateway/b/{}</Location>", upload.key);
                let right = *step != Step::Complete || (text.contains(&location) && text.contains(&upload.object().etag()));
                let fits = carried == 1 && right && !text.contains(SECRET);
                if fits { Ok(()) } else { wrong(format!("{} for {carried}: {text}", plain.status)) }
            }
            Got::Plain(plain) => {
                let said = self.said(outcome, plain.status);
                if said && carried == 0 { Ok(()) } else { wrong(format!("{} for {carried}", plain.status)) }
            }
            Got::Failed { kind, message, .. } => self.told_truly(outcome, *kind, message),
            got => wrong(format!("it got {got:?}")),
        }
    }
}
