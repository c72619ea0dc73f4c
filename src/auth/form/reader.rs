//! The fields of a form, read as its bytes come. What enters is any split of a `multipart/form-data` body; what leaves is the
//! [`Form`] and where its file begins. Strict where readers differ: lines end in CRLF, a part has one `Content-Disposition` and
//! no encoding, a field stands once. Bounded by [`FORM_HEAD_BYTES_MAX`]; each byte is looked at a fixed number of times.
//! Sources: <https://www.rfc-editor.org/rfc/rfc7578>, <https://www.rfc-editor.org/rfc/rfc2046#section-5.1.1>.

use bytes::Bytes;
use http::HeaderValue;
use memchr::memmem;

use super::{Field, Form};
use crate::error::{Error, Kind, Result};

/// Most bytes before the file, delimiters included: S3's 20 KB.
pub const FORM_HEAD_BYTES_MAX: usize = 20 * 1024;

/// Longest delimiter of a form (RFC 2046).
const BOUNDARY_BYTES_MAX: usize = 70;

/// Longest name of a field. A name becomes a header's or a condition's, and those are short.
const NAME_BYTES_MAX: usize = 1024;

const BLANK_LINE: &[u8] = b"\r\n\r\n";

/// Reads the head of one form.
#[derive(Debug)]
pub struct HeadReader {
    /// CRLF, two dashes and the boundary.
    delimiter: Vec<u8>,
    /// All that came, as if a line had ended before it.
    read: Vec<u8>,
    /// What stands before here is understood.
    at: usize,
    /// What stands before here does not hold what is looked for.
    searched: usize,
    next: Next,
    form: Form,
}

/// What is to come at `at`.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// The first delimiter.
    First,
    /// The rest of a delimiter's line.
    Delimited,
    /// The headers of a part.
    Headers,
    /// A field's value.
    Value(String),
    /// The file.
    File,
}

/// What a part's headers say.
struct PartHead {
    name: String,
    file_name: Option<String>,
    content_type: Option<HeaderValue>,
}

impl HeadReader {
    /// A reader for a form with this boundary.
    pub fn new(boundary: &str) -> Self {
        let delimiter = format!("\r\n--{boundary}").into_bytes();
        Self { delimiter, read: b"\r\n".to_vec(), at: 0, searched: 0, next: Next::First, form: Form::default() }
    }

    /// Takes the next bytes. Where the file begins among or behind them, says how many of them come before it; the form is then
    /// complete.
    ///
    /// # Errors
    /// `MalformedPOSTRequest`, `InvalidArgument` for a field that stands twice or a form that ends without a file,
    /// `MaxPostPreDataLengthExceededError`.
    pub fn push(&mut self, data: &[u8]) -> Result<Option<usize>> {
        assert!(self.next != Next::File, "nobody asks once the file has begun");
        let before = self.read.len();
        // One byte more shows that it is too much; a file behind the head need not be copied.
        let room = (FORM_HEAD_BYTES_MAX + 3).saturating_sub(before);
        self.read.extend_from_slice(&data[..data.len().min(room)]);
        while self.step()? {}
        if self.next == Next::File && self.at <= FORM_HEAD_BYTES_MAX + 2 {
            return Ok(Some(self.at - before));
        }
        if self.read.len() > FORM_HEAD_BYTES_MAX + 2 {
            let message = format!("The fields before the form's file have more than {FORM_HEAD_BYTES_MAX} bytes.");
            return Err(Error::new(Kind::MaxPostPreDataLengthExceeded, message));
        }
        Ok(None)
    }

    /// The form, once its file has begun.
    pub fn into_form(self) -> Form {
        assert!(self.next == Next::File, "the head is whole");
        self.form
    }

    /// Why a form that ended in its head is none.
    pub fn cut_short(&self) -> Error {
        malformed("it ends before its file")
    }

    /// Understands one more thing if all of it is here.
    fn step(&mut self) -> Result<bool> {
        match &mut self.next {
            Next::First => {
                let wanted = self.delimiter.len();
                let here = self.read.len().min(wanted);
                if self.read[..here] != self.delimiter[..here] {
                    return Err(malformed("it does not begin with its boundary"));
                }
                if here < wanted {
                    return Ok(false);
                }
                self.go_on(wanted, Next::Delimited);
            }
            Next::Delimited => match self.read.get(self.at..self.at + 2) {
                None => return Ok(false),
                Some(b"\r\n") => self.go_on(self.at + 2, Next::Headers),
                Some(b"--") => return Err(no_file()),
                Some(_) => return Err(malformed("something stands behind a boundary")),
            },
            Next::Headers => {
                let Some(end) = self.find(BLANK_LINE.to_vec()) else { return Ok(false) };
                let PartHead { name, file_name, content_type } = part_head(&self.read[self.at..end])?;
                let end = end + BLANK_LINE.len();
                if name.eq_ignore_ascii_case("file") {
                    self.form.file_name = base_name(&file_name.unwrap_or_default()).to_owned();
                    self.form.file_type = content_type;
                    self.go_on(end, Next::File);
                    return Ok(false);
                }
                if self.form.get(&name).is_some() {
                    return Err(Error::new(Kind::InvalidArgument, format!("The form's field {name} stands twice.")));
                }
                self.go_on(end, Next::Value(name));
            }
            Next::Value(name) => {
                let name = std::mem::take(name);
                // Some readers take a boundary right behind the headers for the end of the part.
                if self.read[self.at..].starts_with(&self.delimiter[2..]) {
                    return Err(malformed("a line is missing before a boundary"));
                }
                let Some(end) = self.find(self.delimiter.clone()) else {
                    self.next = Next::Value(name);
                    return Ok(false);
                };
                let value = Bytes::copy_from_slice(&self.read[self.at..end]);
                self.form.fields.push(Field { name, value });
                self.go_on(end + self.delimiter.len(), Next::Delimited);
            }
            Next::File => return Ok(false),
        }
        Ok(true)
    }

    fn go_on(&mut self, at: usize, next: Next) {
        (self.at, self.searched, self.next) = (at, at, next);
    }

    /// Where `what` begins, if it is here. What was searched is not searched again.
    fn find(&mut self, what: Vec<u8>) -> Option<usize> {
        let found = memmem::find(&self.read[self.searched..], &what).map(|at| self.searched + at);
        self.searched = self.searched.max(self.read.len().saturating_sub(what.len() - 1));
        found
    }
}

/// S3's own words.
pub(super) const MALFORMED: &str = "The body of your POST request is not well-formed multipart/form-data.";

fn malformed(what: &str) -> Error {
    Error::new(Kind::MalformedPostRequest, MALFORMED).with_source(what)
}

/// S3 wants the file last, and takes the form for ended where it ends.
fn no_file() -> Error {
    Error::new(Kind::InvalidArgument, "The form must have exactly one file, in a field named file, as its last field.")
}

/// The boundary that a `Content-Type` gives.
///
/// # Errors
/// `MalformedPOSTRequest` if there is none, or one that RFC 2046 does not allow.
pub fn boundary(content_type: &[u8]) -> Result<String> {
    let text = std::str::from_utf8(content_type).ok();
    let (_, parameters) = text.and_then(|text| text.split_once(';')).ok_or_else(|| malformed("it has no boundary"))?;
    let parameters = parse_parameters(parameters).ok_or_else(|| malformed("its Content-Type cannot be read"))?;
    let boundary = parameters.into_iter().find(|(name, _)| name == "boundary").map(|(_, value)| value);
    let boundary = boundary.ok_or_else(|| malformed("it has no boundary"))?;
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&b);
    let fits = (1..=BOUNDARY_BYTES_MAX).contains(&boundary.len()) && boundary.bytes().all(allowed) && !boundary.ends_with(' ');
    fits.then_some(boundary).ok_or_else(|| malformed("its boundary is none"))
}

fn part_head(block: &[u8]) -> Result<PartHead> {
    let text = std::str::from_utf8(block).map_err(|_| malformed("the headers of a part are not UTF-8"))?;
    let (mut disposition, mut content_type) = (None, None);
    for line in text.split("\r\n") {
        let (name, value) = line.split_once(':').ok_or_else(|| malformed("a part has a header without a value"))?;
        if name.is_empty() || name.bytes().any(|b| !b.is_ascii_graphic()) || value.contains(['\r', '\n', '\0']) {
            return Err(malformed("a part has a header that is none"));
        }
        let value = value.trim_matches([' ', '\t']);
        let name = name.to_ascii_lowercase();
        let again = match name.as_str() {
            "content-disposition" => disposition.replace(value).is_some(),
            "content-type" => content_type.replace(value).is_some(),
            "content-transfer-encoding" if !["7bit", "8bit", "binary"].contains(&value.to_ascii_lowercase().as_str()) => {
                return Err(malformed("a part is encoded"));
            }
            _ => false,
        };
        if again {
            return Err(malformed("a part has a header twice"));
        }
    }
    let disposition = disposition.ok_or_else(|| malformed("a part has no Content-Disposition"))?;
    let (kind, parameters) = disposition.split_once(';').unwrap_or((disposition, ""));
    if !kind.trim_ascii().eq_ignore_ascii_case("form-data") {
        return Err(malformed("a part is no form-data"));
    }
    let parameters = parse_parameters(parameters).ok_or_else(|| malformed("a Content-Disposition cannot be read"))?;
    let get = |wanted: &str| parameters.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone());
    let plain = |name: &String| {
        (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic() && !b"\"\\%".contains(&b))
    };
    let name = get("name").filter(plain).ok_or_else(|| malformed("a part has no name that a field can have"))?;
    let content_type = content_type.map(HeaderValue::from_str).transpose();
    let content_type = content_type.map_err(|_| malformed("a part has a Content-Type that is none"))?;
    Ok(PartHead { name, file_name: get("filename").or_else(|| get("filename*").and_then(extended)), content_type })
}

/// `; name=value` pairs, with names in lower case; nothing if they are not that, or a name stands twice.
fn parse_parameters(text: &str) -> Option<Vec<(String, String)>> {
    let mut parameters: Vec<(String, String)> = Vec::new();
    let mut rest = text.trim_start_matches([' ', '\t', ';']);
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=')?;
        let name = name.trim_matches([' ', '\t']).to_ascii_lowercase();
        let after = after.trim_start_matches([' ', '\t']);
        let (value, behind) = match after.strip_prefix('"') {
            Some(quoted) => unquoted(quoted)?,
            None => {
                let end = after.find(';').unwrap_or(after.len());
                (after[..end].trim_end_matches([' ', '\t']).to_owned(), &after[end..])
            }
        };
        let behind = behind.trim_start_matches([' ', '\t']);
        let token = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_*".contains(&b));
        if !token(&name) || !(behind.is_empty() || behind.starts_with(';')) || parameters.iter().any(|(seen, _)| *seen == name) {
            return None;
        }
        parameters.push((name, value));
        rest = behind.trim_start_matches([' ', '\t', ';']);
    }
    Some(parameters)
}

/// The rest of a quoted string, and what stands behind it. A backslash escapes a quote or a backslash; before anything else it
/// is one, because old browsers tell the whole path of a file.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => {
                let escaped = characters.next_if(|(_, next)| matches!(next, '"' | '\\'));
                value.push(escaped.map_or('\\', |(_, next)| next));
            }
            other => value.push(other),
        }
    }
    None
}

/// The text of `UTF-8''%e2%82%ac` (RFC 8187), by which some clients give a name that is not ASCII.
fn extended(value: String) -> Option<String> {
    let (charset, rest) = value.split_once('\'')?;
    let (_, text) = rest.split_once('\'')?;
    let text = percent_encoding::percent_decode_str(text).decode_utf8().ok()?.into_owned();
    let fits = charset.eq_ignore_ascii_case("utf-8") && !text.contains(|c: char| c.is_control());
    fits.then_some(text)
}

/// What stands behind the last slash or backslash, as S3 has it.
fn base_name(name: &str) -> &str {
    name.rsplit(['/', '\\']).next().expect("split gives one")
}
