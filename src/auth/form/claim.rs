//! Who signed a form. The fields of a form enter; the identity whose key signed its policy leaves, with that policy, once the form
//! conforms to it. Source: <https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-authentication-HTTPPOST.html>.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use s3s_sigv4::calculate_signature_with_key;
use subtle::ConstantTimeEq;

use super::{Form, PostPolicy};
use crate::auth::authenticator::{Authenticator, SKEW_SECONDS_MAX, check_token};
use crate::auth::claim::{ALGORITHM, Claim, EXPIRES_SECONDS_MAX, Scope, parse_date, parse_hex32, signature_version_2};
use crate::auth::{Authenticated, Payload};
use crate::error::{Error, Kind, Result};

impl Authenticator {
    /// Finds out who signed the policy of `form`, an upload to `bucket` of `key`, and whether the form conforms to it.
    ///
    /// # Errors
    /// S3's own codes: `AccessDenied` (anonymous, expired, not as the policy says), `InvalidAccessKeyId`, `InvalidArgument` (a
    /// field is missing or wrong), `InvalidPolicyDocument`, `InvalidRequest`, `InvalidToken`, `SignatureDoesNotMatch`.
    pub fn authenticate_form(&self, form: &Form, bucket: &str, key: &str) -> Result<(Authenticated, PostPolicy)> {
        let (claim, policy) = claim(form)?;
        if claim.service != "s3" || claim.region != self.region() {
            return Err(wrong("x-amz-credential", format_args!("it must be for s3 in the region '{}'", self.region())));
        }
        if !claim.stamp.starts_with(&claim.day) {
            return Err(wrong("x-amz-date", format_args!("its day is not that of the credential, {}", claim.day)));
        }
        let now = self.seconds();
        let age = now.saturating_sub(claim.seconds);
        if age < -SKEW_SECONDS_MAX {
            return Err(Error::new(Kind::AccessDenied, "Request is not valid yet"));
        }
        // A key that was derived for a day lives as long as a presigned URL can.
        if age > i64::try_from(EXPIRES_SECONDS_MAX).unwrap_or(i64::MAX) {
            return Err(Error::new(Kind::AccessDenied, "Invalid according to Policy: Policy expired."));
        }
        let (identity, day_key) = self.identity_of(&claim)?;
        if !bool::from(calculate_signature_with_key(policy, &day_key).ct_eq(&claim.signature)) {
            let message = "The signature is not the one that the policy and the form's secret key give.";
            return Err(Error::new(Kind::SignatureDoesNotMatch, message));
        }
        check_token(&identity, &claim)?;
        let invalid = |_| Error::new(Kind::InvalidPolicyDocument, "Invalid Policy: it is not base64.");
        let policy = PostPolicy::parse(&STANDARD.decode(policy).map_err(invalid)?)?;
        policy.check(form, bucket, key, now)?;
        let authenticated = Authenticated {
            identity,
            payload: Payload::Unsigned,
            payload_pinned: false,
            presigned: false,
            signed_headers: String::new(),
        };
        Ok((authenticated, policy))
    }
}

/// What the form claims, and the policy that it signs. The one place that says which forms are signed, and how.
fn claim(form: &Form) -> Result<(Claim<'_>, &str)> {
    let has = |names: &[&str]| names.iter().any(|name| form.get(name).is_some());
    let version_4 = has(&["x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-signature"]);
    if !version_4 && has(&["awsaccesskeyid", "signature"]) {
        return Err(signature_version_2());
    }
    if !version_4 && form.get("policy").is_none() {
        return Err(Error::new(Kind::AccessDenied, "Anonymous forms are not allowed; sign a policy with Signature Version 4."));
    }
    let field = |name: &'static str| {
        let missing = || wrong(name, format_args!("a signed form must have it, before its file"));
        form.text(name)?.ok_or_else(missing)
    };
    let policy = field("policy")?;
    if field("x-amz-algorithm")? != ALGORITHM {
        return Err(wrong("x-amz-algorithm", format_args!("it must be {ALGORITHM}")));
    }
    let scope = Scope::parse(field("x-amz-credential")?);
    let scope = scope.ok_or_else(|| {
        wrong("x-amz-credential", format_args!("it must have the form access-key/YYYYMMDD/region/s3/aws4_request"))
    })?;
    let stamp = field("x-amz-date")?;
    let (date, seconds) =
        parse_date(stamp).ok_or_else(|| wrong("x-amz-date", format_args!("it must have the form YYYYMMDDTHHMMSSZ")))?;
    let signature = parse_hex32(field("x-amz-signature")?.as_bytes());
    let claim = Claim {
        access_key: Cow::Borrowed(scope.access_key),
        day: scope.day.to_owned(),
        region: scope.region.to_owned(),
        service: scope.service.to_owned(),
        signed_headers: Cow::Borrowed(""),
        signature: signature.ok_or_else(|| wrong("x-amz-signature", format_args!("it must be 64 hex digits")))?,
        date,
        stamp: stamp.to_owned(),
        seconds,
        token: form.get("x-amz-security-token").map(Cow::Borrowed),
        presigned: None,
    };
    Ok((claim, policy))
}

fn wrong(name: &str, what: std::fmt::Arguments<'_>) -> Error {
    Error::new(Kind::InvalidArgument, format!("The form's field {name} is missing or wrong: {what}."))
}
