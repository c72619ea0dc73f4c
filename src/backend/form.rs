//! A form (POST Object) as a store is to get it. In: its fields, its policy's conditions and what its file's part says; out: all of
//! it before the file, with the fields by which a store knows who signed it. Pure. Each field is written in one way whatever the
//! client's was: a store cannot read another form than the gateway has judged.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::HeaderValue;

/// Among the extensions of a request to forward, which is then a POST of the bucket that is authenticated by its form, not by its
/// head. The body is the file, and then the form's end; `content-length` says how long that is, and the part that is written here
/// comes before it.
#[derive(Clone, Debug)]
pub struct PostForm {
    /// The delimiter.
    pub boundary: String,
    /// The bucket's name at the store.
    pub bucket: String,
    /// When the policy ends, as its writer spelt it; nothing where nobody signs the form.
    pub expiration: String,
    /// The policy's conditions as JSON, but for those on the bucket and on who signed it.
    pub conditions: Vec<String>,
    /// The fields, but for those that say who signed the form.
    pub fields: Vec<(String, Bytes)>,
    /// The name of the client's file.
    pub file_name: String,
    /// The `Content-Type` of the file's part.
    pub file_type: Option<HeaderValue>,
}

impl PostForm {
    /// The policy, in base64, with conditions for the bucket and for each of `signer`, the fields that say who signs it.
    pub fn policy(&self, signer: &[(&str, &str)]) -> String {
        let json = |text: &str| serde_json::Value::from(text).to_string();
        let own = [("bucket", self.bucket.as_str())];
        let own = own.iter().chain(signer).map(|(name, value)| format!("{{{}: {}}}", json(name), json(value)));
        let conditions: Vec<String> = self.conditions.iter().cloned().chain(own).collect();
        STANDARD.encode(format!("{{\"expiration\": {}, \"conditions\": [{}]}}", json(&self.expiration), conditions.join(", ")))
    }

    /// All of the form before its file, with the fields of `signed` as well.
    pub fn head(&self, signed: &[(&str, &str)]) -> Bytes {
        let mut out = Vec::with_capacity(4096);
        let mut part = |name: &str, value: &[u8]| {
            let disposition = format!("--{}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n", self.boundary);
            [disposition.as_bytes(), value, b"\r\n"].iter().for_each(|piece| out.extend_from_slice(piece));
        };
        signed.iter().for_each(|(name, value)| part(name, value.as_bytes()));
        self.fields.iter().for_each(|(name, value)| part(name, value));
        // Without a name some servers take a file for a field.
        let name = if self.file_name.is_empty() { "file" } else { &self.file_name };
        let name = name.replace('\\', "\\\\").replace('"', "\\\"");
        let disposition = format!("--{}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n", self.boundary);
        out.extend_from_slice(disposition.as_bytes());
        if let Some(kind) = &self.file_type {
            [b"Content-Type: ", kind.as_bytes(), b"\r\n"].iter().for_each(|piece| out.extend_from_slice(piece));
        }
        out.extend_from_slice(b"\r\n");
        out.into()
    }

    /// What the request's `Content-Type` is.
    pub fn content_type(&self) -> HeaderValue {
        let value = format!("multipart/form-data; boundary={}", self.boundary);
        HeaderValue::from_str(&value).expect("a boundary is made of hex digits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form() -> PostForm {
        PostForm {
            boundary: "b0".to_owned(),
            bucket: "there".to_owned(),
            expiration: "2026-11-30T12:00:00Z".to_owned(),
            conditions: vec!["[\"eq\", \"$key\", \"k\"]".to_owned()],
            fields: vec![("key".to_owned(), Bytes::from("k")), ("x-amz-meta-a".to_owned(), Bytes::from("1\r\n2"))],
            file_name: "a\"b.txt".to_owned(),
            file_type: Some(HeaderValue::from_static("text/plain")),
        }
    }

    #[test]
    fn the_policy_has_what_the_client_wrote_and_what_the_store_must_find() {
        let policy = STANDARD.decode(form().policy(&[("x-amz-date", "d\"")])).expect("base64");
        let policy: serde_json::Value = serde_json::from_slice(&policy).expect("JSON");
        assert_eq!(policy["expiration"], "2026-11-30T12:00:00Z");
        let conditions = serde_json::json!([["eq", "$key", "k"], {"bucket": "there"}, {"x-amz-date": "d\""}]);
        assert_eq!(policy["conditions"], conditions);
    }

    #[test]
    fn a_form_is_written_in_one_way() {
        let head = "--b0\r\nContent-Disposition: form-data; name=\"policy\"\r\n\r\np\r\n\
                    --b0\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\nk\r\n\
                    --b0\r\nContent-Disposition: form-data; name=\"x-amz-meta-a\"\r\n\r\n1\r\n2\r\n\
                    --b0\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\\\"b.txt\"\r\n\
                    Content-Type: text/plain\r\n\r\n";
        assert_eq!(form().head(&[("policy", "p")]), head);
        let nameless = PostForm { file_name: String::new(), file_type: None, fields: Vec::new(), ..form() };
        assert_eq!(nameless.head(&[]), "--b0\r\nContent-Disposition: form-data; name=\"file\"; filename=\"file\"\r\n\r\n");
    }
}
