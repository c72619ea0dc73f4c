//! Policies: what an identity may do. An IAM policy document in JSON enters; yes or no to (action, resource) leaves. The
//! subset is Version, Statement, Sid, Effect, Action and Resource; Deny wins, nothing is allowed that no statement allows, and
//! an element outside the subset is refused by name, because skipping a `Condition` would widen what its writer meant.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::reading::{is_plain, readings};
use crate::types::{Pattern, Pieces};

/// Longest document, in bytes (IAM's own limit is 20 KiB for a bucket policy).
pub const POLICY_BYTES_MAX: usize = 256 * 1024;

/// The action that stands for an operation which we cannot name: only a statement for every S3 action allows it.
pub const EVERY_ACTION: &str = "s3:*";

const ARN: &str = "arn:aws:s3:::";

/// Why a document is not a policy, in one sentence that names the element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError(Cow<'static, str>);

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for PolicyError {}

/// What an action is done to. No bucket is the service level, no key the bucket's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource<'a> {
    /// The bucket by the client's name for it.
    pub bucket: Option<&'a str>,
    /// The key, decoded.
    pub key: Option<&'a [u8]>,
}

impl Resource<'_> {
    /// The resource as policies write it; for messages.
    pub fn arn(&self) -> String {
        match (self.bucket, self.key) {
            (None, _) => format!("{ARN}*"),
            (Some(bucket), None) => format!("{ARN}{bucket}"),
            (Some(bucket), Some(key)) => format!("{ARN}{bucket}/{}", String::from_utf8_lossy(key)),
        }
    }
}

/// A parsed policy; cheap to ask, never changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    statements: Vec<Statement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Statement {
    denies: bool,
    actions: Vec<Pattern>,
    resources: Vec<Pattern>,
}

impl Policy {
    /// Reads a policy document.
    ///
    /// # Errors
    /// Broken JSON, a duplicate member, an element or a value outside the subset: each by name.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        if text.len() > POLICY_BYTES_MAX {
            return refuse(format!("the policy is longer than {POLICY_BYTES_MAX} bytes"));
        }
        let root: Json = serde_json::from_str(text).map_err(|error| PolicyError(error.to_string().into()))?;
        let Json::Object(members) = root else { return refuse("a policy is a JSON object") };
        let mut statements = None;
        for (name, value) in members {
            match (name.as_str(), value) {
                ("Version", Json::Text(version)) if matches!(version.as_str(), "2012-10-17" | "2008-10-17") => {}
                ("Version", _) => return refuse("Version must be \"2012-10-17\" or \"2008-10-17\""),
                ("Statement", Json::List(list)) => statements = Some(list),
                ("Statement", one @ Json::Object(_)) => statements = Some(vec![one]),
                ("Statement", _) => return refuse("Statement must be an object or a list of objects"),
                _ => return refuse(format!("the policy element {name:?} is not supported")),
            }
        }
        let Some(statements) = statements else { return refuse("the policy has no Statement") };
        let statements = statements.into_iter().map(Statement::parse).collect::<Result<_, _>>()?;
        Ok(Self { statements })
    }

    /// Reads of everything: `s3:Get*`, `s3:List*` and `s3:Describe*`, which HEAD requests need too.
    pub fn read_only() -> Self {
        Self::of(&["s3:get*", "s3:list*", "s3:describe*"])
    }

    /// Everything.
    pub fn full_access() -> Self {
        Self::of(&["*"])
    }

    /// Nothing.
    pub fn none() -> Self {
        Self::default()
    }

    fn of(actions: &[&str]) -> Self {
        let actions = actions.iter().map(|action| Pattern::new(action)).collect();
        Self { statements: vec![Statement { denies: false, actions, resources: vec![Pattern::Any] }] }
    }

    /// Whether `action` may be done to `resource`. [`EVERY_ACTION`] needs a statement that allows every S3 action, and any
    /// Deny on the resource refuses it, since the operation might be the one that is denied. A key that a store may read as
    /// another one must be allowed as each of them, unless the action is allowed everywhere.
    pub fn allows(&self, action: &str, resource: &Resource<'_>) -> bool {
        let as_read = |key: Option<Vec<u8>>| {
            key.is_some_and(|key| self.allows_as_written(action, &Resource { bucket: resource.bucket, key: Some(&key) }))
        };
        self.allows_as_written(action, resource)
            && resource.key.is_none_or(|key| is_plain(key) || self.allows_everywhere(action) || readings(key).all(as_read))
    }

    fn allows_everywhere(&self, action: &str) -> bool {
        let named = || self.statements.iter().filter(|statement| statement.names(action));
        named().all(|statement| !statement.denies) && named().any(|statement| statement.resources.iter().any(is_everything))
    }

    fn allows_as_written(&self, action: &str, resource: &Resource<'_>) -> bool {
        let text = match (resource.bucket, resource.key) {
            // IAM asks for `*` here, and users write `arn:aws:s3:::*` as often.
            (None, _) => Pieces([ARN.as_bytes(), b"*", b"", b""]),
            (Some(bucket), None) => Pieces([ARN.as_bytes(), bucket.as_bytes(), b"", b""]),
            (Some(bucket), Some(key)) => Pieces([ARN.as_bytes(), bucket.as_bytes(), b"/", key]),
        };
        let mut allowed = false;
        for statement in &self.statements {
            // An allowing statement changes nothing once one was found; a denying one always may.
            if (statement.denies || !allowed) && statement.names(action) && statement.resources.iter().any(|r| r.matches(&text)) {
                if statement.denies {
                    return false;
                }
                allowed = true;
            }
        }
        allowed
    }
}

impl Statement {
    fn names(&self, action: &str) -> bool {
        if action == EVERY_ACTION {
            return self.denies || self.actions.iter().any(Pattern::covers_s3);
        }
        // Patterns were folded when they were parsed. No action of ours is longer than this.
        let mut folded = [0; ACTION_BYTES_MAX];
        let Some(folded) = folded.get_mut(..action.len()) else { return self.denies };
        folded.copy_from_slice(action.as_bytes());
        folded.make_ascii_lowercase();
        self.actions.iter().any(|a| a.matches(&Pieces([folded])))
    }

    fn parse(value: Json) -> Result<Self, PolicyError> {
        let Json::Object(members) = value else { return refuse("each Statement is a JSON object") };
        let (mut effect, mut actions, mut resources) = (None, None, None);
        for (name, value) in members {
            match (name.as_str(), value) {
                ("Sid", Json::Text(_)) => {}
                ("Sid", _) => return refuse("Sid must be a string"),
                ("Effect", Json::Text(text)) if text == "Allow" => effect = Some(false),
                ("Effect", Json::Text(text)) if text == "Deny" => effect = Some(true),
                ("Effect", _) => return refuse("Effect must be \"Allow\" or \"Deny\""),
                ("Action", value) => actions = Some(strings("Action", value)?.iter().map(|a| action(a)).collect::<Result<_, _>>()?),
                ("Resource", value) => {
                    resources = Some(strings("Resource", value)?.iter().map(|r| resource(r)).collect::<Result<_, _>>()?);
                }
                _ => return refuse(format!("the policy element {name:?} is not supported in a Statement")),
            }
        }
        match (effect, actions, resources) {
            (Some(denies), Some(actions), Some(resources)) => Ok(Self { denies, actions, resources }),
            (None, ..) => refuse("a Statement has no Effect"),
            (_, None, _) => refuse("a Statement has no Action"),
            (.., None) => refuse("a Statement has no Resource"),
        }
    }
}

/// Whether every resource fits.
fn is_everything(pattern: &Pattern) -> bool {
    match pattern {
        Pattern::Any => true,
        Pattern::Prefix(prefix) => ARN.as_bytes().starts_with(prefix),
        Pattern::Exact(_) | Pattern::Glob(_) => false,
    }
}

/// Above the longest name in `action`'s table, `s3:UpdateBucketMetadataInventoryTableConfiguration`.
const ACTION_BYTES_MAX: usize = 64;

fn action(text: &str) -> Result<Pattern, PolicyError> {
    match text.split_once(':') {
        Some((service, name)) if !service.is_empty() && !name.is_empty() => Ok(Pattern::new(&text.to_ascii_lowercase())),
        _ if text == "*" => Ok(Pattern::Any),
        _ => refuse(format!("the Action {text:?} is neither \"*\" nor \"service:Name\"")),
    }
}

fn resource(text: &str) -> Result<Pattern, PolicyError> {
    if text.contains("${") {
        return refuse(format!("policy variables are not supported: {text:?}"));
    }
    // A resource that can never match would make a Deny silently void.
    let stem = text.split(['*', '?']).next().unwrap_or_default();
    let fits = text.starts_with(ARN) || (stem.len() < text.len() && ARN.starts_with(stem));
    if fits { Ok(Pattern::new(text)) } else { refuse(format!("the Resource {text:?} is neither \"*\" nor \"{ARN}bucket/key\"")) }
}

fn strings(name: &str, value: Json) -> Result<Vec<String>, PolicyError> {
    let list = match value {
        Json::Text(text) => return Ok(vec![text]),
        Json::List(list) if !list.is_empty() => list,
        _ => return refuse(format!("{name} must be a string or a list of strings")),
    };
    list.into_iter()
        .map(|item| match item {
            Json::Text(text) => Ok(text),
            _ => refuse(format!("{name} must be a string or a list of strings")),
        })
        .collect()
}

fn refuse<T>(why: impl Into<Cow<'static, str>>) -> Result<T, PolicyError> {
    Err(PolicyError(why.into()))
}

/// JSON that keeps what policies are made of and refuses duplicate members, which serde_json's own value would merge.
enum Json {
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
    Other,
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a policy document")
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.to_owned()))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = seq.next_element()? {
            list.push(item);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut members: Vec<(String, Json)> = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, Json>()? {
            if members.iter().any(|(seen, _)| *seen == name) {
                return Err(serde::de::Error::custom(format!("the member {name:?} stands twice")));
            }
            members.push((name, value));
        }
        Ok(Json::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn object<'a>(bucket: &'a str, key: &'a str) -> Resource<'a> {
        Resource { bucket: Some(bucket), key: Some(key.as_bytes()) }
    }

    fn bucket(bucket: &str) -> Resource<'_> {
        Resource { bucket: Some(bucket), key: None }
    }

    const SERVICE: Resource<'_> = Resource { bucket: None, key: None };

    #[test]
    fn a_document_with_lists_and_single_values() {
        let policy = Policy::parse(
            r#"{"Version": "2012-10-17", "Statement": [
                {"Sid": "r", "Effect": "Allow", "Action": ["S3:getobject", "s3:ListBucket"], "Resource": "arn:aws:s3:::train*"},
                {"Effect": "Deny", "Action": "s3:*", "Resource": ["arn:aws:s3:::train/secret/*", "arn:aws:s3:::train/?x"]}]}"#,
        )
        .expect("valid");
        assert!(policy.allows("s3:GetObject", &object("train", "a")));
        assert!(policy.allows("s3:GetObject", &object("train-2", "a")));
        assert!(policy.allows("s3:ListBucket", &bucket("train")));
        assert!(!policy.allows("s3:GetObject", &object("train", "secret/a")));
        assert!(!policy.allows("s3:GetObject", &object("train", "ax")));
        assert!(!policy.allows("s3:PutObject", &object("train", "a")));
        assert!(!policy.allows("s3:GetObject", &object("Train", "a")), "resources are case-sensitive");
        assert!(!policy.allows("s3:GetObject", &object("other", "a")));
        assert!(!policy.allows("s3:ListAllMyBuckets", &SERVICE));
    }

    #[test]
    fn a_bucket_and_its_objects_are_different_resources() {
        let policy =
            Policy::parse(r#"{"Statement": {"Effect": "Allow", "Action": "*", "Resource": "arn:aws:s3:::b/*"}}"#).expect("valid");
        assert!(policy.allows("s3:GetObject", &object("b", "k")));
        assert!(!policy.allows("s3:ListBucket", &bucket("b")));
        assert!(!policy.allows("s3:GetObject", &object("b2", "k")));
    }

    #[test]
    fn the_service_level_is_a_star() {
        for resource in ["*", "arn:aws:s3:::*"] {
            let text = format!(r#"{{"Statement": {{"Effect": "Allow", "Action": "s3:List*", "Resource": "{resource}"}}}}"#);
            assert!(Policy::parse(&text).expect("valid").allows("s3:ListAllMyBuckets", &SERVICE), "{resource}");
        }
    }

    #[test]
    fn an_unnameable_operation_needs_every_action_and_no_deny() {
        let policy = |actions: &str, deny: &str| {
            Policy::parse(&format!(
                r#"{{"Statement": [{{"Effect": "Allow", "Action": {actions}, "Resource": "*"}},
                    {{"Effect": "Deny", "Action": "s3:DeleteObject", "Resource": "{deny}"}}]}}"#
            ))
            .expect("valid")
        };
        for actions in [r#""s3:*""#, r#""*""#, r#"["s3:GetObject", "S3:**"]"#] {
            assert!(policy(actions, "arn:aws:s3:::other/*").allows(EVERY_ACTION, &object("b", "k")), "{actions}");
            assert!(!policy(actions, "arn:aws:s3:::b/*").allows(EVERY_ACTION, &object("b", "k")), "{actions}");
        }
        for actions in [r#""s3:?""#, r#""s3:Get*""#, r#"["s3:GetObject", "s3:Put*", "ec2:*"]"#] {
            assert!(!policy(actions, "arn:aws:s3:::other/*").allows(EVERY_ACTION, &object("b", "k")), "{actions}");
        }
    }

    #[test]
    fn the_named_policies() {
        let key = object("b", "k");
        assert!(Policy::full_access().allows("s3:PutObject", &key) && Policy::full_access().allows(EVERY_ACTION, &key));
        assert!(
            Policy::read_only().allows("s3:GetObjectVersion", &key) && Policy::read_only().allows("s3:ListBucket", &bucket("b"))
        );
        assert!(Policy::read_only().allows("s3:ListAllMyBuckets", &SERVICE));
        assert!(!Policy::read_only().allows("s3:PutObject", &key) && !Policy::read_only().allows(EVERY_ACTION, &key));
        assert!(!Policy::none().allows("s3:GetObject", &key));
    }

    #[test]
    fn trap_a_key_is_judged_as_every_store_may_read_it() {
        let policy = |allow: &str, more: &str| {
            let text = format!(r#"{{"Statement": [{{"Effect": "Allow", "Action": "s3:*", "Resource": "{allow}"}}{more}]}}"#);
            Policy::parse(&text).expect("valid")
        };
        let mine = policy("arn:aws:s3:::allowed-*/mine/*", "");
        let may = |policy: &Policy, key: &str| policy.allows("s3:DeleteObject", &object("allowed-x", key));
        for key in ["mine/k", "mine//k", "mine/a/../k", "mine/.k", "mine/a\\b", "mine/./k"] {
            assert!(may(&mine, key), "{key}");
        }
        for key in ["mine/../../secret-b/k", "mine/../other", "mine/..", "mine\\..\\other", "mine/..\\other", "mine/x/../../other"]
        {
            assert!(!may(&mine, key), "{key}");
        }
        let deny = r#", {"Effect": "Deny", "Action": "s3:Delete*", "Resource": "arn:aws:s3:::*/private/*"}"#;
        let barred = policy("*", deny);
        let odd = ["//private/k", "/private/k", "private\\k", "./private/k", "x/../private/k", "private//k", "a\\..\\private/k"];
        for key in odd.into_iter().chain(["private/k"]) {
            assert!(!may(&barred, key), "{key}");
            assert!(barred.allows("s3:GetObject", &object("allowed-x", key)), "{key}: only deletes are barred");
            assert!(may(&Policy::full_access(), key) && may(&policy("arn:aws:s3:::*", ""), key), "{key}");
        }
        assert!(may(&barred, "public/a/..//k") && !may(&barred, "../k"), "who is barred from something stays in the bucket");
        assert!(may(&Policy::full_access(), "../k"), "who may do everything names every key");
        assert!(!may(&Policy::read_only(), "a//k"));
    }

    #[test]
    fn what_is_outside_the_subset_is_refused_by_name() {
        let statement = |extra: &str| format!(r#"{{"Statement": {{"Effect": "Allow", "Action": "*", "Resource": "*"{extra}}}}}"#);
        assert!(Policy::parse(&statement("")).is_ok());
        let cases = [
            (statement(r#", "Condition": {}"#), "Condition"),
            (statement(r#", "NotAction": "*""#), "NotAction"),
            (statement(r#", "Principal": "*""#), "Principal"),
            (statement(r#", "Action": "*""#), "Action"),
            (statement(r#", "Sid": 3"#), "Sid"),
            (r#"{"Id": "x", "Statement": []}"#.into(), "Id"),
            (r#"{"Version": "2020-01-01", "Statement": []}"#.into(), "Version"),
            (r#"{"Version": "2012-10-17"}"#.into(), "Statement"),
            (r#"{"Statement": [], "Statement": []}"#.into(), "Statement"),
            (r#"{"Statement": [1]}"#.into(), "Statement"),
            (r#"{"Statement": {"Effect": "allow", "Action": "*", "Resource": "*"}}"#.into(), "Effect"),
            (r#"{"Statement": {"Effect": "Allow", "Resource": "*"}}"#.into(), "Action"),
            (r#"{"Statement": {"Effect": "Allow", "Action": "*"}}"#.into(), "Resource"),
            (r#"{"Statement": {"Effect": "Allow", "Action": [], "Resource": "*"}}"#.into(), "Action"),
            (r#"{"Statement": {"Effect": "Allow", "Action": "GetObject", "Resource": "*"}}"#.into(), "GetObject"),
            (r#"{"Statement": {"Effect": "Allow", "Action": "*", "Resource": "bucket"}}"#.into(), "bucket"),
            (r#"{"Statement": {"Effect": "Allow", "Action": "*", "Resource": "arn:aws:s3:::${aws:username}"}}"#.into(), "${aws:"),
            ("[]".into(), "object"),
            ("{".into(), "EOF"),
        ];
        for (text, named) in cases {
            let error = Policy::parse(&text).expect_err(&text).to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn prop_deny_wins_wherever_it_stands(
            statements in proptest::collection::vec((any::<bool>(), "s3:(Get|Put)?[*]", "[ab*?]{0,3}"), 0..6),
            key in "[ab]{1,3}",
        ) {
            let text = statements.iter().map(|(deny, action, resource)| {
                let effect = if *deny { "Deny" } else { "Allow" };
                format!(r#"{{"Effect": "{effect}", "Action": "{action}", "Resource": "arn:aws:s3:::b/{resource}"}}"#)
            }).collect::<Vec<_>>().join(",");
            let policy = Policy::parse(&format!(r#"{{"Statement": [{text}]}}"#)).expect("valid");
            let hits = |deny: bool| statements.iter().any(|(denies, action, resource)| {
                *denies == deny && action != "s3:Put*" && Pattern::new(resource).matches(&Pieces([key.as_bytes()]))
            });
            let expected = hits(false) && !hits(true);
            prop_assert_eq!(policy.allows("s3:GetObject", &object("b", &key)), expected);
        }
    }
}
