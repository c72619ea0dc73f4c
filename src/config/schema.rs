//! The JSON schema of a settings file, for editors and checks outside. What enters is the structs, from which schemars
//! derives it; what leaves is that, with what a file may say in other words than the structs: `…_file`, `…_env`, policies.
//! Invariant: a key is in the schema exactly if `load` knows it (a test walks both).

use schemars::{Schema, SchemaGenerator, json_schema, schema_for};
use serde_json::{Map, Value, json};

use super::Settings;
use super::load::OF_S3;

/// The JSON schema (draft 2020-12) of a settings file.
pub fn schema() -> Value {
    let mut schema = schema_for!(Settings).to_value();
    schema["title"] = json!("Batchgate settings");
    if let Some(identity) = schema.pointer_mut("/$defs/IdentityConfig") {
        let properties = identity["properties"].as_object_mut().expect("a struct has properties");
        for key in ["access_key", "secret_key", "session_token"] {
            alternatives(properties, key);
        }
        properties.insert("policy".into(), json!({ "description": "A policy by name.", "enum": ["read-only", "full-access"] }));
        properties.insert("policy_file".into(), text("File with an IAM policy document in JSON."));
        properties.insert("policy_json".into(), text("An IAM policy document in JSON."));
        identity["required"] = json!(["name"]);
        identity["allOf"] = json!([one_of("access_key"), one_of("secret_key")]);
    }
    if let Some(backend) = schema.pointer_mut("/$defs/BackendConfig") {
        backend["required"] = json!(["name"]);
        let no = |key: &str| json!({ "not": { "required": [key] } });
        let elsewhere: Vec<Value> = OF_S3.iter().map(|key| no(key)).collect();
        backend["if"] = json!({ "properties": { "kind": { "const": "embedded" } }, "required": ["kind"] });
        backend["then"] = json!({ "allOf": elsewhere });
        backend["else"] = json!({ "required": ["endpoint"], "allOf": [no("memory_bytes_max")] });
        for key in ["name", "endpoint"] {
            // The struct has an empty text there only so that reading can go on after a mistake.
            backend["properties"][key].as_object_mut().expect("a property is an object").remove("default");
        }
    }
    schema
}

/// The schema of a backend's credentials, which are a table with a tag.
pub(super) fn credentials(_: &mut SchemaGenerator) -> Schema {
    let mut properties = key_pair();
    properties.insert(
        "source".into(),
        json!({ "description": "\"chain\": as every AWS tool finds them; \"static\": the pair given here.", "enum": ["chain", "static"] }),
    );
    let fixed = json!({ "properties": { "source": { "const": "static" } }, "required": ["source"] });
    let pair = json!({ "allOf": [one_of("access_key"), one_of("secret_key")] });
    json_schema!({ "type": "object", "properties": properties, "additionalProperties": false, "if": fixed, "then": pair })
}

/// The schema of an identity's accounts at backends: the table of a pair by the backend's name.
pub(super) fn backend_credentials(_: &mut SchemaGenerator) -> Schema {
    let pair = json!({
        "type": "object",
        "properties": key_pair(),
        "additionalProperties": false,
        "allOf": [one_of("access_key"), one_of("secret_key")],
    });
    json_schema!({ "type": "object", "additionalProperties": pair })
}

/// The keys of a key pair.
fn key_pair() -> Map<String, Value> {
    let mut properties = Map::new();
    for (key, description) in [
        ("access_key", "The access key's id."),
        ("secret_key", "The secret key."),
        ("session_token", "The session token, where the pair is a temporary one."),
    ] {
        properties.insert(key.into(), text(description));
        alternatives(&mut properties, key);
    }
    properties
}

fn text(description: &str) -> Value {
    json!({ "description": description, "type": "string", "minLength": 1 })
}

fn alternatives(properties: &mut Map<String, Value>, key: &str) {
    properties.insert(format!("{key}_file"), text(&format!("File that holds {key}; a newline at its end is dropped.")));
    properties.insert(format!("{key}_env"), text(&format!("Environment variable that holds {key}.")));
}

fn one_of(key: &str) -> Value {
    let ways = [key.to_owned(), format!("{key}_file"), format!("{key}_env")];
    json!({ "oneOf": ways.map(|way| json!({ "required": [way] })) })
}
