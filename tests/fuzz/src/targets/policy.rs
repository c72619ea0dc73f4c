//! Policies. Three lines with an action, a bucket and a key, then a document. What a parsed policy allows must be what a naive
//! reading of the same document allows: some Allow fits, and no Deny does.

use batchgate::auth::policy::{EVERY_ACTION, Policy, Resource};
use serde_json::Value;

/// Longest action that a policy can allow, in octets.
const ACTION_BYTES_MAX: usize = 64;

/// See the module.
pub fn run(data: &[u8]) {
    if data.len() > super::INPUT_BYTES_MAX {
        return;
    }
    let ([action, bucket, key], document) = super::lines(data);
    let (Ok(action), Ok(bucket), Ok(document)) =
        (std::str::from_utf8(action), std::str::from_utf8(bucket), std::str::from_utf8(document))
    else {
        return;
    };
    let Ok(policy) = Policy::parse(document) else { return };
    let document: Value = serde_json::from_str(document).expect("what was accepted is JSON");
    let objects = [
        Resource { bucket: None, key: None },
        Resource { bucket: Some(bucket), key: None },
        Resource { bucket: Some(bucket), key: Some(key) },
    ];
    for resource in objects {
        for action in [action, EVERY_ACTION, "s3:GetObject"] {
            assert_eq!(policy.allows(action, &resource), naive(&document, action, &resource), "{action} on {resource:?}");
        }
    }
}

fn naive(document: &Value, action: &str, resource: &Resource<'_>) -> bool {
    let text = match (resource.bucket, resource.key) {
        (None, _) => b"arn:aws:s3:::*".to_vec(),
        (Some(bucket), None) => format!("arn:aws:s3:::{bucket}").into_bytes(),
        (Some(bucket), Some(key)) => [format!("arn:aws:s3:::{bucket}/").as_bytes(), key].concat(),
    };
    let fits = |effect: &str| {
        all(&document["Statement"]).filter(|statement| statement["Effect"] == effect).any(|statement| {
            let acts = all(&statement["Action"]).any(|pattern| names(pattern.as_str().expect("text"), action, effect == "Deny"));
            acts && all(&statement["Resource"]).any(|pattern| glob(pattern.as_str().expect("text").as_bytes(), &text))
        })
    };
    fits("Allow") && !fits("Deny")
}

/// Of a list its items, of anything else itself.
fn all(value: &Value) -> impl Iterator<Item = &Value> {
    match value {
        Value::Array(items) => items.iter(),
        one => std::slice::from_ref(one).iter(),
    }
}

fn names(pattern: &str, action: &str, denies: bool) -> bool {
    if action == EVERY_ACTION {
        // A Deny of anything may be of the very thing that is done.
        let stem = pattern.trim_end_matches('*');
        return denies || (stem.len() < pattern.len() && ["", "s3:"].contains(&stem.to_ascii_lowercase().as_str()));
    }
    if action.len() > ACTION_BYTES_MAX {
        return denies;
    }
    glob(pattern.to_ascii_lowercase().as_bytes(), action.to_ascii_lowercase().as_bytes())
}

/// By a table of all pairs of beginnings: slow, and hard to get wrong.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let mut row = vec![false; text.len() + 1];
    row[0] = true;
    for octet in pattern {
        let mut next = vec![false; text.len() + 1];
        next[0] = *octet == b'*' && row[0];
        for (at, other) in text.iter().enumerate() {
            next[at + 1] = match octet {
                b'*' => row[at + 1] || next[at],
                b'?' => row[at],
                octet => row[at] && octet == other,
            };
        }
        row = next;
    }
    row[text.len()]
}
