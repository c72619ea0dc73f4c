//! POST Object: an upload from a browser's form, whose fields say all that headers say elsewhere, and whose signed `policy` says
//! who may send which. What enters is the body of a `multipart/form-data` request; what leaves is its fields ([`reader`]), who
//! signed them ([`claim`]) and under which conditions ([`policy`]), and the bytes of the file as they come ([`file`]).
//! Sources: <https://docs.aws.amazon.com/AmazonS3/latest/API/RESTObjectPOST.html>,
//! <https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-HTTPPOSTForms.html>.
//!
//! Invariant: of what came before the file, at most [`FORM_HEAD_BYTES_MAX`] are held. Each field stands once, and its name can
//! be written into a new form as it is, so that nobody behind us can read another form than was judged here.

mod claim;
mod file;
pub mod policy;
pub mod reader;

use std::error::Error as StdError;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body::Body;
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::body_error::too_large;
use super::{HELD_TIMEOUT, OBJECT_BYTES_MAX, Payer, Permission, permissions};
use crate::error::{Error, Kind, Result};
use crate::types::S3Target;

pub use file::FileBody;
pub use policy::PostPolicy;
pub use reader::{FORM_HEAD_BYTES_MAX, HeadReader};

/// In the value of `key`, the name of the client's file.
const FILENAME: &str = "${filename}";

/// What is paid for at a time while the fields come: what a client only announces keeps nobody else out.
const PIECE_BYTES: usize = 4096;

/// How often a field is in memory: as it came, as it is judged, and as it is written anew, in a policy too.
const COPIES: usize = 4;

/// One field before the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name as the client spells it; case has no meaning.
    pub name: String,
    /// The value, byte for byte.
    pub value: Bytes,
}

/// A form up to where its file begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form {
    /// The fields in their order; no two have one name.
    pub fields: Vec<Field>,
    /// The name of the client's file, without the folders that old browsers tell; empty where it has none.
    pub file_name: String,
    /// The `Content-Type` that the file's part has, which is the object's where no field gives one.
    pub file_type: Option<HeaderValue>,
}

impl Form {
    /// The value of a field, by its name in lower case.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|field| field.name.eq_ignore_ascii_case(name)).map(|field| &field.value[..])
    }

    /// The value of a field that is text.
    ///
    /// # Errors
    /// `InvalidArgument` if it is not UTF-8.
    pub fn text(&self, name: &str) -> Result<Option<&str>> {
        let not_text = |_| Error::new(Kind::InvalidArgument, format!("The form's field {name} is not UTF-8."));
        self.get(name).map(std::str::from_utf8).transpose().map_err(not_text)
    }

    /// The key that the object gets. How long it may be is for the store to say, as with other uploads.
    ///
    /// # Errors
    /// `InvalidArgument` if there is none, or one that the store would read differently.
    pub fn key(&self) -> Result<String> {
        let missing = || Error::new(Kind::InvalidArgument, "The form must have a field named key before its file.");
        let key = self.text("key")?.ok_or_else(missing)?.replace(FILENAME, &self.file_name);
        // The store would replace it once more, and the key would be another one than was judged.
        let fits = !key.is_empty() && !key.contains(FILENAME);
        let unfit = || {
            Error::new(
                Kind::InvalidArgument,
                "The form's key must not be empty or, with the file's name filled in, have ${filename} in it.",
            )
        };
        fits.then_some(key).ok_or_else(unfit)
    }

    /// What the upload needs to be allowed to do: what a PUT of `key` with the fields as headers would.
    ///
    /// # Errors
    /// `NotImplemented` for a field that would make it a copy.
    pub fn permissions(&self, bucket: &str, key: &str) -> Result<Vec<Permission>> {
        let mut headers = HeaderMap::new();
        for Field { name, .. } in &self.fields {
            let name = match name.to_ascii_lowercase().as_str() {
                "acl" => "x-amz-acl".to_owned(),
                "tagging" => "x-amz-tagging".to_owned(),
                name if name.starts_with("x-amz-copy-source") => {
                    return Err(Error::new(Kind::NotImplemented, "A form cannot copy an object."));
                }
                name => name.to_owned(),
            };
            // Of a name that is no header's nothing could ask.
            if let Ok(name) = HeaderName::try_from(name) {
                headers.insert(name, HeaderValue::from_static("present"));
            }
        }
        let target = S3Target { bucket: Some(bucket.to_owned()), key: Some(key.as_bytes().to_vec()), ..S3Target::default() };
        permissions(&Method::PUT, &target, "", &headers)
    }
}

/// A form whose file has begun.
pub struct Begun<B> {
    /// All before the file.
    pub form: Form,
    /// What of the file is here already.
    pub first: Bytes,
    /// The rest of it.
    pub rest: B,
    /// How many bytes [`Self::first`] and [`Self::rest`] have, the form's end included.
    pub bytes: u64,
    /// The delimiter of the client's form.
    pub boundary: String,
}

/// Reads a form up to its file, in [`HELD_TIMEOUT`] at the most. `payer` pays for what is held of it, and goes on to.
///
/// # Errors
/// `MissingContentLength` for a body whose length is not announced, as a store would say; `EntityTooLarge`; `RequestTimeout`; those of
/// [`HeadReader`]; the payer's and the body's own.
pub async fn begin<B>(headers: &HeaderMap, body: B, payer: &mut impl Payer) -> Result<Begun<B>>
where
    B: Body<Data = Bytes, Error = Box<dyn StdError + Send + Sync>> + Unpin,
{
    let boundary = reader::boundary(headers.get(http::header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default())?;
    let unknown = || Error::new(Kind::MissingContentLength, "A form must say how long it is.");
    let length = body.size_hint().exact().ok_or_else(unknown)?;
    if length > OBJECT_BYTES_MAX {
        return Err(too_large(length, OBJECT_BYTES_MAX).into());
    }
    let late = |_| Error::new(Kind::RequestTimeout, "The form's fields did not come in time.");
    timeout(HELD_TIMEOUT, begin_within(boundary, length, body, payer)).await.map_err(late)?
}

async fn begin_within<B>(boundary: String, length: u64, mut body: B, payer: &mut impl Payer) -> Result<Begun<B>>
where
    B: Body<Data = Bytes, Error = Box<dyn StdError + Send + Sync>> + Unpin,
{
    let mut reader = HeadReader::new(&boundary);
    let mut read = 0;
    loop {
        let Some(frame) = body.frame().await else { return Err(reader.cut_short()) };
        let mut data = frame.map_err(|error| Error::from(super::BodyError::of_source(error)))?.into_data().unwrap_or_default();
        let held = FORM_HEAD_BYTES_MAX.min(read as usize + data.len()).next_multiple_of(PIECE_BYTES);
        payer.pay((COPIES * held) as u64).await?;
        if let Some(used) = reader.push(&data)? {
            read += used as u64;
            let first = data.split_off(used);
            return Ok(Begun { form: reader.into_form(), first, rest: body, bytes: length - read, boundary });
        }
        read += data.len() as u64;
    }
}

#[cfg(test)]
mod tests;
