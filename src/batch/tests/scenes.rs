//! Scenes: objects, entries, faults and clients, as properties draw them.

use http::{HeaderMap, StatusCode};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Where keys come from: five objects, one that is missing, one that the policy denies.
pub(super) const OBJECTS: usize = 5;
pub(super) const MISSING: usize = OBJECTS;
pub(super) const DENIED: usize = OBJECTS + 1;

/// All that decides a case.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub objects: Vec<Object>,
    pub scripts: Vec<Vec<Step>>,
    pub otherwise: Step,
    pub wanted: Vec<Wanted>,
    pub completion: bool,
    pub on_error: &'static str,
    pub summary: bool,
    pub client: Client,
    pub numbers: Numbers,
    pub seed: u64,
}

impl Scene {
    pub fn rig(&self) -> Rig {
        let rig = Rig::new(self.numbers, self.otherwise, self.seed);
        for (at, (object, script)) in self.objects.iter().zip(&self.scripts).enumerate() {
            rig.store.put(&key(at), object.clone());
            rig.store.script(&key(at), script.iter().copied());
        }
        rig
    }

    pub fn request(&self) -> Value {
        let mut request = request(&self.wanted);
        request["OnError"] = json!(self.on_error);
        request["Order"] = json!(if self.completion { "Completion" } else { "Request" });
        request["Summary"] = json!(self.summary);
        request
    }

    /// What lone reads of a healthy store say, entry by entry; nothing where the policy or the routes refuse.
    pub fn lone(&self, rig: &Rig) -> Vec<Option<(StatusCode, HeaderMap, Vec<u8>)>> {
        let refused = |wanted: &Wanted| wanted.key.starts_with("denied") || is_nowhere(wanted);
        self.wanted.iter().map(|wanted| (!refused(wanted)).then(|| rig.store.lone(&wanted.ask()))).collect()
    }
}

/// The policy allows it, but no backend has it.
pub(super) fn is_nowhere(wanted: &Wanted) -> bool {
    wanted.bucket.is_some_and(|bucket| bucket != "b")
}

pub(super) fn key(at: usize) -> String {
    match at {
        MISSING => "missing".into(),
        DENIED => "denied/one".into(),
        _ => format!("objects//{at}/<&>"),
    }
}

pub(super) fn length() -> impl Strategy<Value = usize> {
    prop_oneof![
        1 => Just(0usize),
        6 => 1..300usize,
        3 => 900..1100usize,
        4 => 1000..6000usize,
        1 => 60_000..70_000usize,
    ]
}

pub(super) fn object(strong: bool) -> impl Strategy<Value = Object> {
    (length(), any::<bool>(), any::<bool>()).prop_map(move |(length, weak, versioned)| Object {
        weak: weak && !strong,
        versioned,
        ..Object::of(length)
    })
}

pub(super) fn range() -> impl Strategy<Value = Option<String>> {
    prop_oneof![
        5 => Just(None),
        2 => (0..6000u64, 0..6000u64).prop_map(|(a, b)| Some(format!("bytes={}-{}", a.min(b), a.max(b)))),
        1 => (0..6000u64).prop_map(|a| Some(format!("bytes={a}-"))),
        1 => (1..6000u64).prop_map(|n| Some(format!("bytes=-{n}"))),
    ]
}

pub(super) fn wanted() -> impl Strategy<Value = Wanted> {
    let tag = || prop::sample::select(vec!["\"generation-0\"", "\"generation-1\"", "\"other\""]);
    let condition = prop_oneof![8 => Just(0u8), 1 => Just(1), 1 => Just(2)];
    let at = prop_oneof![12 => 0..OBJECTS, 1 => Just(MISSING), 1 => Just(DENIED)];
    let bucket = prop_oneof![12 => Just(None), 2 => Just(Some("b")), 1 => Just(Some("nowhere"))];
    (at, bucket, range(), condition, tag(), prop::option::weighted(0.2, Just("v-1")), any::<bool>()).prop_map(
        |(at, bucket, range, condition, tag, version, id)| Wanted {
            key: key(at),
            bucket,
            range,
            if_match: (condition == 1).then(|| tag.into()),
            if_none_match: (condition == 2).then(|| tag.into()),
            version,
            id: id.then(|| format!("tag-{at}")),
        },
    )
}

/// `change` is the probability that the object changes before the attempt.
pub(super) fn step(act: impl Strategy<Value = Act>, change: f64) -> impl Strategy<Value = Step> {
    let frame_bytes = prop::sample::select(vec![1usize, 100, 700, 1024, 5000, 100_000]);
    let head_ms = prop_oneof![Just(0u64), 1..50u64, 500..1500u64];
    let frame_ms = prop::sample::select(vec![0u64, 0, 1, 30]);
    (act, prop::bool::weighted(change), head_ms, frame_ms, frame_bytes).prop_map(
        |(act, changes, head_ms, frame_ms, frame_bytes)| Step {
            act,
            changes,
            head_ms,
            // A pause for each few bytes would take longer than any deadline.
            frame_ms: if frame_bytes < 700 { 0 } else { frame_ms },
            frame_bytes,
        },
    )
}

pub(super) fn retryable() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => Just(Act::Healthy),
        1 => Just(Act::Unreachable),
        1 => Just(Act::Reset),
        1 => Just(Act::Silent),
        1 => prop::sample::select(vec![500u16, 502, 503, 504]).prop_map(|status| Act::Status(status, "InternalError")),
        1 => Just(Act::Status(503, "SlowDown")),
        1 => Just(Act::Status(429, "TooManyRequests")),
        2 => length().prop_map(Act::Cut),
        1 => length().prop_map(Act::EndEarly),
        1 => length().prop_map(Act::StallAfter),
    ]
}

pub(super) fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => retryable(),
        1 => Just(Act::Garbled),
        1 => Just(Act::Status(404, "NoSuchKey")),
        1 => Just(Act::Status(403, "AccessDenied")),
        1 => Just(Act::Status(412, "PreconditionFailed")),
        1 => Just(Act::Status(501, "not a code!")),
        1 => Just(Act::NoLength),
        2 => length().prop_map(Act::NoLengthCut),
        1 => (1..2000usize).prop_map(Act::Longer),
        1 => Just(Act::Everything),
        1 => Just(Act::Unconditional),
        1 => Just(Act::OtherRange),
        1 => Just(Act::OtherTotal),
        1 => Just(Act::NoContentRange),
        1 => Just(Act::NotModified),
    ]
}

pub(super) fn client() -> impl Strategy<Value = Client> {
    prop_oneof![
        3 => Just(Client::Eager),
        1 => (1..3000u64).prop_map(|pause_ms| Client::Drip { pause_ms }),
        1 => (0..20_000usize, 1..5000u64).prop_map(|(after, secs)| Client::Stall { after, secs }),
    ]
}

pub(super) fn numbers(deadline_secs: u64) -> impl Strategy<Value = Numbers> {
    (1..6usize, 1..8usize, prop::sample::select(vec![2u64, 8, 64])).prop_map(move |(concurrency, permits, window)| Numbers {
        concurrency,
        permits,
        window_bytes: window * KIB,
        deadline: Duration::from_secs(deadline_secs),
        ..Numbers::default()
    })
}

/// A scene without faults; the tests put in theirs.
pub(super) fn scene(strong: bool, deadline_secs: u64) -> impl Strategy<Value = Scene> {
    let objects = prop::collection::vec(object(strong), OBJECTS);
    let wanted = prop::collection::vec(wanted(), 1..24);
    let on_error = prop::sample::select(vec!["Continue", "Continue", "Stop", "Omit"]);
    let how = (any::<bool>(), on_error, any::<bool>(), client(), numbers(deadline_secs), any::<u64>());
    (objects, step(Just(Act::Healthy), 0.0), wanted, how).prop_map(
        |(objects, otherwise, wanted, (completion, on_error, summary, client, numbers, seed))| Scene {
            objects,
            scripts: vec![Vec::new(); OBJECTS],
            otherwise,
            wanted,
            completion,
            on_error,
            summary,
            client,
            numbers,
            seed,
        },
    )
}

pub(super) fn scripts(act: impl Strategy<Value = Act>, change: f64, most: usize) -> impl Strategy<Value = Vec<Vec<Step>>> {
    prop::collection::vec(prop::collection::vec(step(act, change), 0..most), OBJECTS)
}
