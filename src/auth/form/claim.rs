//! Who signed a form. The fields of a form enter; the identity whose key signed its policy leaves, with that policy, once the form
//! conforms to it. Sources: <https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-authentication-HTTPPOST.html> and, for
//! Version 2, <https://docs.aws.amazon.com/AmazonS3/latest/userguide/HTTPPOSTForms.html>.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use s3s_sigv4::calculate_signature_with_key;
use sha1::Sha1;
use subtle::ConstantTimeEq;

use super::{Form, PostPolicy};
use crate::auth::authenticator::{Authenticator, SKEW_SECONDS_MAX, check_token};
use crate::auth::claim::{ALGORITHM, Claim, EXPIRES_SECONDS_MAX, Scope, parse_date, parse_hex32};
use crate::auth::refusals::{no_match, no_version_2};
use crate::auth::{Authenticated, Identity, Payload, Scheme};
use crate::error::{Error, Kind, Result};

/// What a form says of its sender.
enum Claimed<'a> {
    /// Signed by Version 4.
    V4(Claim<'a>),
    /// Signed by Version 2, with this access key and this signature.
    V2(&'a str, &'a str),
    /// Nothing at all.
    Nobody,
}

impl Authenticator {
    /// Finds out who signed the policy of `form`, an upload to `bucket` of `key`, and whether the form conforms to it. Where nobody
    /// is let in, there is no policy.
    ///
    /// # Errors
    /// S3's own codes: `AccessDenied` (anonymous, expired, not as the policy says), `InvalidAccessKeyId`, `InvalidArgument` (a
    /// field is missing or wrong), `InvalidPolicyDocument`, `InvalidRequest` (Version 2 where it is not let in), `InvalidToken`,
    /// `SignatureDoesNotMatch`.
    pub fn authenticate_form(&self, form: &Form, bucket: &str, key: &str) -> Result<(Authenticated, Option<PostPolicy>)> {
        let (identity, scheme) = match claimed(form)? {
            Claimed::V4(claim) => (self.form_of_version_4(form, &claim)?, Scheme::V4),
            Claimed::V2(access_key, signature) if self.also().version_2 => {
                (self.form_of_version_2(form, access_key, signature)?, Scheme::V2)
            }
            Claimed::V2(..) => return Err(no_version_2()),
            Claimed::Nobody if self.also().nobody => return Ok((Authenticated::nobody(), None)),
            Claimed::Nobody => {
                return Err(Error::new(
                    Kind::AccessDenied,
                    "Anonymous forms are not allowed; sign a policy with Signature Version 4.",
                ));
            }
        };
        let invalid = |_| Error::new(Kind::InvalidPolicyDocument, "Invalid Policy: invalid Base64 encoding.");
        let policy = PostPolicy::parse(&STANDARD.decode(field(form, "policy")?).map_err(invalid)?)?;
        policy.check(form, bucket, key, self.seconds())?;
        let authenticated = Authenticated {
            identity,
            scheme,
            payload: Payload::Unsigned,
            payload_pinned: false,
            presigned: false,
            signed_headers: String::new(),
        };
        Ok((authenticated, Some(policy)))
    }

    fn form_of_version_4(&self, form: &Form, claim: &Claim<'_>) -> Result<Arc<Identity>> {
        if let Some(region) = self.region_instead_of(&claim.region) {
            let message = format!("the region \"{}\" is wrong; expecting \"{region}\"", claim.region);
            return Err(Error::argument(message, "x-amz-credential", field(form, "x-amz-credential")?));
        }
        if !claim.stamp.starts_with(&claim.day) {
            return Err(wrong("x-amz-date", format_args!("its day is not that of the credential, {}", claim.day)));
        }
        let age = self.seconds().saturating_sub(claim.seconds);
        if age < -SKEW_SECONDS_MAX {
            return Err(Error::new(Kind::AccessDenied, "Request is not valid yet"));
        }
        // A key that was derived for a day lives as long as a presigned URL can.
        if age > i64::try_from(EXPIRES_SECONDS_MAX).unwrap_or(i64::MAX) {
            return Err(Error::new(Kind::AccessDenied, "Invalid according to Policy: Policy expired."));
        }
        let (identity, day_key) = self.identity_of(claim)?;
        let signature = calculate_signature_with_key(field(form, "policy")?, &day_key);
        if !bool::from(signature.ct_eq(&claim.signature)) {
            return Err(differs(form, &claim.access_key, field(form, "x-amz-signature")?));
        }
        check_token(&identity, claim.token.as_deref())?;
        Ok(identity)
    }

    fn form_of_version_2(&self, form: &Form, access_key: &str, signature: &str) -> Result<Arc<Identity>> {
        let identity = self.identity(access_key)?;
        let mut mac = Hmac::<Sha1>::new_from_slice(identity.secret_key.as_bytes()).expect("hmac takes keys of any length");
        mac.update(field(form, "policy")?.as_bytes());
        // What is no signature is that of nothing.
        let given = STANDARD.decode(signature).unwrap_or_default();
        if !bool::from(mac.finalize().into_bytes().ct_eq(&given[..])) {
            return Err(differs(form, access_key, signature));
        }
        check_token(&identity, form.get("x-amz-security-token"))?;
        Ok(identity)
    }
}

/// What is signed is the policy as it stands in the form.
fn differs(form: &Form, access_key: &str, provided: &str) -> Error {
    let policy = form.get("policy").map(String::from_utf8_lossy).unwrap_or_default();
    let octets = policy.bytes().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
    no_match(access_key)
        .with_detail("StringToSign", policy)
        .with_detail("SignatureProvided", provided)
        .with_detail("StringToSignBytes", octets)
}

/// What the form claims. The one place that says which forms are signed, and how; one that is half signed is never nobody's.
fn claimed(form: &Form) -> Result<Claimed<'_>> {
    let has = |names: &[&str]| names.iter().any(|name| form.get(name).is_some());
    let version_4 = has(&["x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-signature"]);
    match (version_4, has(&["awsaccesskeyid", "signature"])) {
        (true, true) => Err(Error::new(Kind::InvalidArgument, "A form is signed in one way.")),
        (true, false) => claim_of_version_4(form).map(Claimed::V4),
        (false, true) => {
            field(form, "policy")?;
            Ok(Claimed::V2(field(form, "awsaccesskeyid")?, field(form, "signature")?))
        }
        (false, false) if has(&["policy", "x-amz-security-token"]) => Err(missing("x-amz-signature")),
        (false, false) => Ok(Claimed::Nobody),
    }
}

fn claim_of_version_4(form: &Form) -> Result<Claim<'_>> {
    field(form, "policy")?;
    let algorithm = field(form, "x-amz-algorithm")?;
    if algorithm != ALGORITHM {
        return Err(Error::argument(format!("Only {ALGORITHM} is supported"), "X-Amz-Algorithm", algorithm));
    }
    let credential = field(form, "x-amz-credential")?;
    let stamp = field(form, "x-amz-date")?;
    field(form, "x-amz-signature")?;
    let scope = Scope::parse(credential).map_err(|what| Error::argument(what, "x-amz-credential", credential))?;
    let (date, seconds) = parse_date(stamp)
        .ok_or_else(|| Error::argument("X-Amz-Date must be formated via ISO8601 Long format", "X-Amz-Date", stamp))?;
    let signature = parse_hex32(field(form, "x-amz-signature")?.as_bytes());
    Ok(Claim {
        access_key: Cow::Borrowed(scope.access_key),
        day: scope.day.to_owned(),
        region: scope.region.to_owned(),
        signed_headers: Cow::Borrowed(""),
        // What is no signature is that of nothing.
        signature: signature.unwrap_or([0; 32]),
        date,
        stamp: stamp.to_owned(),
        seconds,
        token: form.get("x-amz-security-token").map(Cow::Borrowed),
        presigned: None,
    })
}

fn field<'a>(form: &'a Form, name: &'static str) -> Result<&'a str> {
    form.text(name)?.ok_or_else(|| missing(name))
}

fn missing(name: &str) -> Error {
    let message =
        format!("Bucket POST must contain a field named '{name}'.  If it is specified, please check the order of the fields.");
    Error::argument(message, name, "")
}

fn wrong(name: &str, what: std::fmt::Arguments<'_>) -> Error {
    Error::new(Kind::InvalidArgument, format!("The form's field {name} is missing or wrong: {what}."))
}
