//! What a request claims about its sender, read but not yet believed. The head of a request enters; access key, scope, date,
//! list of signed headers and signature leave, from the `Authorization` header or from the query of a presigned URL. Nothing
//! here knows a secret. Sources: <https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-auth-using-authorization-header.html>
//! and <https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html>.

use std::borrow::Cow;

use http::request::Parts;
use s3s_sigv4::AmzDate;

use super::canonical::single;
use crate::error::{Error, Kind, Result};
use crate::types::{percent_decode, query_pairs};

/// Longest life of a presigned URL: seven days, as on S3.
pub const EXPIRES_SECONDS_MAX: u64 = 7 * 24 * 60 * 60;

pub(super) const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// What a request says of its sender.
pub(super) enum Claimed<'a> {
    /// Signed by Version 4.
    V4(Box<Claim<'a>>),
    /// Signed by Version 2: in the header that this is the value of, or in the query.
    V2(Option<&'a [u8]>),
    /// Nothing at all.
    Nobody,
}

/// A claim of Version 4, by either way of making it.
pub(super) struct Claim<'a> {
    pub(super) access_key: Cow<'a, str>,
    /// `YYYYMMDD` of the scope.
    pub(super) day: String,
    pub(super) region: String,
    /// As the client wrote it: names joined by semicolons.
    pub(super) signed_headers: Cow<'a, str>,
    pub(super) signature: [u8; 32],
    pub(super) date: AmzDate,
    /// `date` as the string to sign spells it.
    pub(super) stamp: String,
    /// `date` in seconds since 1970.
    pub(super) seconds: i64,
    pub(super) token: Option<Cow<'a, [u8]>>,
    /// The presigned URL's own members; nothing for the header.
    pub(super) presigned: Option<Presigned>,
}

pub(super) struct Presigned {
    /// Seconds from `date`, at least 1.
    pub(super) expires: u64,
    /// `X-Amz-Content-Sha256`, which some clients put here and not in a header.
    pub(super) payload: Option<String>,
}

impl<'a> Claimed<'a> {
    /// Reads the claim. One that is half there is an error and never nobody's.
    ///
    /// # Errors
    /// `AccessDenied` for an undated or half-signed request, `InvalidArgument` for two claims at once, otherwise the
    /// malformed-kind of the header or the query, naming the part.
    pub(super) fn read(head: &'a Parts) -> Result<Self> {
        let query = head.uri.query().unwrap_or_default();
        let header = single(&head.headers, "authorization")?;
        match (header, Query::read(query)?, is_version_2(query)) {
            (None, None, true) => Ok(Self::V2(None)),
            (None, Some(query), false) => Claim::from_query(query).map(|claim| Self::V4(Box::new(claim))),
            (Some(header), None, false) if is_version_2_header(header) => Ok(Self::V2(Some(header))),
            (Some(header), None, false) => Claim::from_header(head, header).map(|claim| Self::V4(Box::new(claim))),
            (None, None, false) if head.headers.contains_key("x-amz-security-token") || speaks_of_a_signature(query) => {
                Err(Error::new(Kind::AccessDenied, "The request has a part of a signature, but no signature."))
            }
            (None, None, false) => Ok(Self::Nobody),
            _ => {
                let message = "A request is signed in the Authorization header or in its query, and once.";
                Err(Error::new(Kind::InvalidArgument, message))
            }
        }
    }
}

fn is_version_2_header(value: &[u8]) -> bool {
    value.trim_ascii_start().strip_prefix(b"AWS").is_some_and(|rest| rest.first().is_none_or(u8::is_ascii_whitespace))
}

fn is_version_2(query: &str) -> bool {
    query_pairs(query).any(|(name, _)| matches!(name, "AWSAccessKeyId" | "Signature"))
}

/// Whether a name is in the query that has its place in a presigned URL, however it is written.
fn speaks_of_a_signature(query: &str) -> bool {
    query_pairs(query).any(|(name, _)| {
        let name = String::from_utf8(percent_decode(name)).unwrap_or_default().to_ascii_lowercase();
        let version_4 = name.strip_prefix("x-amz-").is_some_and(|rest| AUTH_PARAMETERS.contains(&rest));
        version_4 || matches!(name.as_str(), "awsaccesskeyid" | "expires" | "signature")
    })
}

impl<'a> Claim<'a> {
    fn from_header(head: &'a Parts, header: &'a [u8]) -> Result<Self> {
        let malformed =
            |what: &str| Error::new(Kind::AuthorizationHeaderMalformed, format!("The authorization header is malformed; {what}"));
        let text = std::str::from_utf8(header).map_err(|_| malformed("it is not text."))?.trim_ascii();
        let (algorithm, fields) = text.split_once([' ', '\t']).ok_or_else(|| {
            let message = "Authorization header is invalid -- one and only one ' ' (space) required.";
            Error::argument(message, "Authorization", text)
        })?;
        match algorithm {
            ALGORITHM => {}
            _ if algorithm.starts_with("AWS4-ECDSA-") => {
                return Err(Error::new(
                    Kind::NotImplemented,
                    format!("The algorithm {algorithm} is not implemented; use {ALGORITHM}."),
                ));
            }
            _ => return Err(Error::argument("Unsupported Authorization Type", "Authorization", algorithm)),
        }
        let (mut credential, mut signed_headers, mut signature) = (None, None, None);
        let fields = || fields.split(',').map(str::trim_ascii).filter(|field| !field.is_empty());
        if fields().count() != 3 {
            let what = "the authorization header requires three components: Credential, SignedHeaders, and Signature.";
            return Err(malformed(what));
        }
        for field in fields() {
            let (name, value) = field
                .split_once('=')
                .ok_or_else(|| malformed(&format!("the authorization component \"{field}\" is malformed.")))?;
            match name {
                "Credential" => credential = Some(value),
                "SignedHeaders" => signed_headers = Some(value),
                "Signature" => signature = Some(value),
                // Then one of the three is missing, as it is where one stands twice.
                _ => {}
            }
        }
        let credential = credential.ok_or_else(|| malformed("missing Credential."))?;
        let signed_headers = signed_headers.filter(|list| !list.is_empty()).ok_or_else(|| malformed("missing SignedHeaders."))?;
        let signature = signature.ok_or_else(|| malformed("missing Signature."))?;
        let undated = || Error::new(Kind::AccessDenied, "AWS authentication requires a valid Date or x-amz-date header.");
        let stamp = match single(&head.headers, "x-amz-date")? {
            Some(stamp) => std::str::from_utf8(stamp).map_err(|_| undated())?.to_owned(),
            None => single(&head.headers, "date")?.and_then(stamp_of_http_date).ok_or_else(undated)?,
        };
        let (date, seconds) = parse_date(&stamp).ok_or_else(undated)?;
        let token = single(&head.headers, "x-amz-security-token")?.map(Cow::Borrowed);
        let scope = Scope::parse(credential).map_err(|what| malformed(&what))?;
        Ok(Self {
            access_key: Cow::Borrowed(scope.access_key),
            day: scope.day.to_owned(),
            region: scope.region.to_owned(),
            signed_headers: Cow::Borrowed(signed_headers),
            signature: parse_signature(signature).ok_or_else(|| malformed("the Signature must be 64 hex digits."))?,
            date,
            stamp,
            seconds,
            token,
            presigned: None,
        })
    }

    fn from_query(query: Query<'a>) -> Result<Self> {
        let malformed = |what: String| Error::new(Kind::AuthorizationQueryParametersError, what);
        let missing = || {
            let what = "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, \
                        X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters.";
            malformed(what.to_owned())
        };
        let algorithm = query.algorithm.ok_or_else(missing)?;
        let credential = query.credential.ok_or_else(missing)?;
        let stamp = query.date.ok_or_else(missing)?.into_owned();
        let expires = query.expires.ok_or_else(missing)?;
        let signed_headers = query.signed_headers.filter(|l| !l.is_empty()).ok_or_else(missing)?;
        let signature = query.signature.ok_or_else(missing)?;
        if algorithm != ALGORITHM {
            let known = if algorithm.starts_with("AWS4-ECDSA-") { "" } else { " and AWS4-ECDSA-P256-SHA256" };
            return Err(malformed(format!("X-Amz-Algorithm only supports \"{ALGORITHM}{known}\"")));
        }
        let scope =
            Scope::parse(&credential).map_err(|what| malformed(format!("Error parsing the X-Amz-Credential parameter; {what}")))?;
        let undated = || malformed("X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"".to_owned());
        let (date, seconds) = parse_date(&stamp).ok_or_else(undated)?;
        let expires = lifetime(&expires).map_err(|what| malformed(what.to_owned()))?;
        Ok(Self {
            day: scope.day.to_owned(),
            region: scope.region.to_owned(),
            access_key: Cow::Owned(scope.access_key.to_owned()),
            signed_headers,
            signature: parse_signature(&signature).ok_or_else(|| malformed("X-Amz-Signature must be 64 hex digits.".to_owned()))?,
            date,
            stamp,
            seconds,
            token: query.token.map(|token| Cow::Owned(token.into_owned().into_bytes())),
            presigned: Some(Presigned { expires, payload: query.payload.map(Cow::into_owned) }),
        })
    }

    /// Whether the client lists `name` as signed.
    pub(super) fn signs(&self, name: &str) -> bool {
        self.signed_headers.split(';').any(|signed| signed.eq_ignore_ascii_case(name))
    }

    /// Whether a name is listed twice. It would be hashed as often as it is listed, so a short list of one long header could
    /// cost much memory before anybody is known to ask.
    pub(super) fn repeats_a_header(&self) -> bool {
        let names = self.signed_headers.split(';');
        let sorted = names.clone().is_sorted_by(|a, b| a < b) && !self.signed_headers.bytes().any(|b| b.is_ascii_uppercase());
        let repeats = || {
            let mut names: Vec<_> = names.map(str::to_ascii_lowercase).collect();
            names.sort_unstable();
            names.windows(2).any(|pair| pair[0] == pair[1])
        };
        !sorted && repeats()
    }

    /// The scope is of another day than the request.
    pub(super) fn other_day(&self) -> Error {
        match self.presigned {
            // S3 begins twice here.
            None => self
                .malformed("The authorization header is malformed; Invalid credential date. Date is not the same as X-Amz-Date."),
            Some(_) => {
                let day = self.stamp.get(..8).unwrap_or(&self.stamp);
                let message =
                    format!("Invalid credential date \"{}\". This date is not the same as X-Amz-Date: \"{day}\".", self.day);
                Error::new(Kind::AuthorizationQueryParametersError, message)
            }
        }
    }

    /// The kind and the place to name where the scope is not ours. `what` is a whole clause, with the full stop that S3 gives it
    /// or not.
    pub(super) fn malformed(&self, what: impl std::fmt::Display) -> Error {
        match self.presigned {
            None => Error::new(Kind::AuthorizationHeaderMalformed, format!("The authorization header is malformed; {what}")),
            Some(_) => {
                let message = format!("Error parsing the X-Amz-Credential parameter; {what}");
                Error::new(Kind::AuthorizationQueryParametersError, message)
            }
        }
    }
}

const TERMINATOR: &str = "aws4_request";

fn form_of_a_credential() -> String {
    format!("the Credential is mal-formed; expecting \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/{TERMINATOR}\".")
}

/// Seconds that a presigned URL lives; otherwise what is wrong, as S3 says it.
fn lifetime(text: &str) -> std::result::Result<u64, &'static str> {
    match text.parse::<i64>() {
        Err(_) => Err("X-Amz-Expires should be a number"),
        Ok(..0) => Err("X-Amz-Expires must be non-negative"),
        Ok(0) => Err("X-Amz-Expires must be at least 1"),
        Ok(seconds) => match u64::try_from(seconds) {
            Ok(seconds) if seconds <= EXPIRES_SECONDS_MAX => Ok(seconds),
            _ => Err("X-Amz-Expires must be less than a week (in seconds); that is, the given X-Amz-Expires must be less than \
                      604800 seconds"),
        },
    }
}

/// A scope of S3.
pub(super) struct Scope<'a> {
    pub(super) access_key: &'a str,
    pub(super) day: &'a str,
    pub(super) region: &'a str,
}

impl<'a> Scope<'a> {
    /// From the right, because an access key may hold a slash. Otherwise what is wrong, as S3 says it.
    pub(super) fn parse(credential: &'a str) -> std::result::Result<Self, String> {
        let fields: Vec<_> = credential.rsplitn(5, '/').collect();
        let [terminator, service, region, day, access_key] = fields[..] else { return Err(form_of_a_credential()) };
        if access_key.is_empty() || terminator != TERMINATOR && access_key.contains('/') {
            return Err(form_of_a_credential());
        }
        if service != "s3" {
            return Err(format!("incorrect service \"{service}\". This endpoint belongs to \"s3\"."));
        }
        if terminator != TERMINATOR {
            return Err(format!("incorrect terminal \"{terminator}\". This endpoint uses \"{TERMINATOR}\"."));
        }
        if day.len() != 8 || !day.bytes().all(|b| b.is_ascii_digit()) {
            let form = "This date in the credential must be in the format \"yyyyMMdd\".";
            return Err(format!("incorrect date format \"{day}\". {form}"));
        }
        Ok(Self { access_key, day, region })
    }
}

/// The authentication parameters of a query, decoded; each at most once.
#[derive(Default)]
struct Query<'a> {
    algorithm: Option<Cow<'a, str>>,
    credential: Option<Cow<'a, str>>,
    date: Option<Cow<'a, str>>,
    expires: Option<Cow<'a, str>>,
    signed_headers: Option<Cow<'a, str>>,
    signature: Option<Cow<'a, str>>,
    token: Option<Cow<'a, str>>,
    payload: Option<Cow<'a, str>>,
}

impl<'a> Query<'a> {
    /// Nothing if the query carries no signature of Version 4.
    fn read(query: &'a str) -> Result<Option<Self>> {
        let mut read = Self::default();
        for (name, value) in query_pairs(query) {
            let slot = match name {
                "X-Amz-Algorithm" => &mut read.algorithm,
                "X-Amz-Credential" => &mut read.credential,
                "X-Amz-Date" => &mut read.date,
                "X-Amz-Expires" => &mut read.expires,
                "X-Amz-SignedHeaders" => &mut read.signed_headers,
                "X-Amz-Signature" => &mut read.signature,
                "X-Amz-Security-Token" => &mut read.token,
                "X-Amz-Content-Sha256" => &mut read.payload,
                _ => continue,
            };
            let refuse = |what| Error::new(Kind::AuthorizationQueryParametersError, format!("The parameter {name} {what}."));
            let value = percent_encoding::percent_decode_str(value).decode_utf8().map_err(|_| refuse("is not UTF-8"))?;
            if slot.replace(value).is_some() {
                return Err(refuse("may be given only once"));
            }
        }
        let signed = read.algorithm.is_some() || read.credential.is_some() || read.signature.is_some();
        Ok(signed.then_some(read))
    }
}

/// The parameters of a presigned URL, in lower case and without what all begin with.
const AUTH_PARAMETERS: [&str; 8] =
    ["algorithm", "credential", "date", "expires", "signedheaders", "signature", "security-token", "content-sha256"];

/// `query` without the parameters that authenticate a presigned URL: what may go on to a backend, still encoded.
pub(super) fn strip_auth_query(query: &str) -> String {
    let is_auth = |pair: &&str| {
        let name = pair.split('=').next().unwrap_or_default();
        name.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("x-amz-"))
            && AUTH_PARAMETERS.iter().any(|n| name[6..].eq_ignore_ascii_case(n))
    };
    query.split('&').filter(|pair| !is_auth(pair)).collect::<Vec<_>>().join("&")
}

fn parse_signature(text: &str) -> Option<[u8; 32]> {
    parse_hex32(text.as_bytes())
}

/// 64 hex digits of either case.
pub(super) fn parse_hex32(text: &[u8]) -> Option<[u8; 32]> {
    let text: &[u8; 64] = text.try_into().ok()?;
    let digit = |at: usize| char::from(text[at]).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let mut out = [0; 32];
    for (index, byte) in out.iter_mut().enumerate() {
        *byte = digit(2 * index)? << 4 | digit(2 * index + 1)?;
    }
    Some(out)
}

pub(super) fn parse_date(stamp: &str) -> Option<(AmzDate, i64)> {
    let date = AmzDate::parse(stamp).ok()?;
    let seconds = date.to_time()?.as_second();
    Some((date, seconds))
}

/// `Fri, 24 May 2013 00:00:00 GMT` as `20130524T000000Z`. The weekday is not checked; a stamp already in the second form is kept.
pub(super) fn stamp_of_http_date(value: &[u8]) -> Option<String> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let text = std::str::from_utf8(value).ok()?;
    let Some((_, date)) = text.split_once(", ") else { return Some(text.to_owned()) };
    let mut fields = date.split(' ');
    let (day, month, year) = (fields.next()?, fields.next()?, fields.next()?);
    let (time, zone) = (fields.next()?, fields.next()?);
    let month = 1 + MONTHS.iter().position(|name| *name == month)?;
    let fits = matches!(zone, "GMT" | "UTC" | "+0000") && fields.next().is_none() && time.len() == 8;
    fits.then(|| format!("{year}{month:02}{day:0>2}T{}Z", time.replace(':', "")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_http_date_is_a_stamp() {
        assert_eq!(stamp_of_http_date(b"Fri, 24 May 2013 00:01:02 GMT").as_deref(), Some("20130524T000102Z"));
        assert_eq!(stamp_of_http_date(b"20130524T000102Z").as_deref(), Some("20130524T000102Z"));
        assert_eq!(stamp_of_http_date(b"Fri, 24 Mai 2013 00:01:02 GMT"), None);
        assert_eq!(stamp_of_http_date(b"Fri, 24 May 2013 00:01:02 CET"), None);
    }

    #[test]
    fn what_authenticates_does_not_travel_on() {
        let query = "versionId=v&X-Amz-Algorithm=a&X-Amz-Credential=c&X-Amz-Date=d&X-Amz-Expires=1&X-Amz-SignedHeaders=host\
                     &x-amz-acl=private&X-Amz-Signature=s&X-Amz-Security-Token=t&X-Amz-Content-Sha256=p&a=%2F";
        assert_eq!(strip_auth_query(query), "versionId=v&x-amz-acl=private&a=%2F");
        assert_eq!(strip_auth_query("a&b="), "a&b=");
    }

    #[test]
    fn an_access_key_may_hold_a_slash() {
        let scope = Scope::parse("a/b/20130524/r/s3/aws4_request").expect("valid");
        assert_eq!((scope.access_key, scope.day, scope.region), ("a/b", "20130524", "r"));
        let cases = [
            ("", "the Credential is mal-formed"),
            ("a/20130524/r/s3", "the Credential is mal-formed"),
            ("/20130524/r/s3/aws4_request", "the Credential is mal-formed"),
            ("a/20130524/r/s3/more/things", "the Credential is mal-formed"),
            ("a/2013052/r/ec2/aws4", "incorrect service \"ec2\""),
            ("a/2013052/r/s3/aws4", "incorrect terminal \"aws4\""),
            ("a/2013052/r/s3/aws4_request", "incorrect date format \"2013052\""),
        ];
        for (bad, named) in cases {
            assert!(Scope::parse(bad).is_err_and(|what| what.starts_with(named)), "{bad}");
        }
    }
}
