//! What settings promise: merging, naming every mistake once with its place, hiding secrets, and that the files in
//! `config/` and the schema say the same as the code.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;

use super::*;

mod listen;
mod secrets;

const REFERENCE: &str = include_str!("../../config/reference.toml");
const MINIMAL: &str = include_str!("../../config/minimal.toml");
const SEVERAL: &str = include_str!("../../config/several-stores.toml");

/// Files of identities.
const IDENTITIES: &str = "[[identities]]\nname = \"elsewhere\"\naccess_key = \"ELSE\"\nsecret_key = \"of-a-file\"\n";
const BROKEN_IDENTITIES: &str = "[[identities]]\nname = \"a\"\naccess_key = \"OTHER\"\nsecret_key = \"s\"\n[[identities]]\nname = \"b\"\n\
                                 access_key = \"K\"\nsecret_key_file = \"none\"\n[[identities]]\nname = \"b\"\naccess_key = \"B\"\nsecret_key = \"s\"\n\
                                 polcy = \"read-only\"\n[server]\nregion = \"x\"\n";

/// The files that settings in these tests may name.
fn read_file(path: &Path, bytes_max: u64) -> io::Result<String> {
    let found = match path.to_str() {
        Some("etc/secret" | "secret") => Ok("from-file\n".into()),
        Some("etc/empty") => Ok("\n".into()),
        Some("etc/policy.json") => Ok("{}".into()),
        Some("etc/tls.crt" | "etc/tls.key") => Ok("PEM".into()),
        Some("etc/identities.toml") => Ok(IDENTITIES.into()),
        Some("etc/sub/more.toml") => Ok(format!("{IDENTITIES}policy_file = \"policy.json\"\n")),
        Some("etc/sub/policy.json") => Ok("{\"of\": \"its own folder\"}".into()),
        Some("etc/sub/broken.toml") => Ok(BROKEN_IDENTITIES.into()),
        Some("etc/sub/syntax.toml") => Ok("[[identities]]\nname = \"z\"\naccess_key = \nsecret_key = \"x\"\n".into()),
        Some("etc/sub/heading.toml") => Ok("[[identities]\nname = \"a\"\n".into()),
        Some("etc/sub/nobody.toml") => Ok("identities = []\n".into()),
        Some("etc/latin1.pem") => Err(io::ErrorKind::InvalidData.into()),
        Some("etc/16MiB1") => Ok(" ".repeat((16 << 20) + 1)),
        Some("etc/16MiB") => Ok(" ".repeat(16 << 20)),
        Some("etc/1MiB") => Ok(" ".repeat(1 << 20)),
        Some("etc/64KiB") => Ok("x".repeat(64 << 10)),
        Some("etc/two-lines") => Ok("id\nkey\n".into()),
        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    found.and_then(|text: String| if text.len() as u64 > bytes_max { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(text) })
}

fn check_policy(text: &str) -> Result<(), String> {
    if text.starts_with('{') { Ok(()) } else { Err("is no policy".into()) }
}

fn load_all(file: &str, env: &[(&str, &str)], flags: Vec<Flag>) -> Result<Settings, Vec<Problem>> {
    let env = env.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect();
    let file = Some((Path::new("etc/gate.toml"), file.to_owned()));
    load(&Sources { file, env, flags, read_file: &read_file, check_policy: &check_policy })
}

fn load_text(file: &str) -> Result<Settings, Vec<Problem>> {
    load_all(file, &[], Vec::new())
}

/// `line key` of each problem; the origin's words where it is no line.
fn places(result: Result<Settings, Vec<Problem>>) -> Vec<String> {
    let place = |p: Problem| match p.origin {
        Origin::File { line, .. } => format!("{line} {}", p.key),
        other => format!("{other} {}", p.key),
    };
    result.expect_err("has problems").into_iter().map(place).collect()
}

/// The messages, joined.
fn messages(result: Result<Settings, Vec<Problem>>) -> String {
    result.expect_err("has problems").iter().map(|p| format!("{p}\n")).collect()
}

fn flag(name: &str, key: &str, value: impl Into<toml::Value>) -> Flag {
    Flag { name: name.into(), key: key.into(), value: value.into() }
}

#[test]
fn clients_sign_for_the_region_of_the_stores_unless_told_or_there_are_several() {
    let backend = |name: &str, region: &str| format!("[[backends]]\nname = \"{name}\"\nendpoint = \"http://h\"\n{region}\n");
    let eu = "region = \"eu-west-1\"";
    for (file, region) in [
        (String::new(), "us-east-1"),
        (backend("a", ""), "us-east-1"),
        (backend("a", eu), "eu-west-1"),
        (backend("a", eu) + &backend("b", eu), "eu-west-1"),
        (backend("a", eu) + &backend("b", ""), "us-east-1"),
        ("[server]\nregion = \"x\"\n".to_owned() + &backend("a", eu), "x"),
    ] {
        let routes = "[[routes]]\nbucket = \"*\"\nbackend = \"a\"\n";
        let file = if file.is_empty() { file } else { file + routes };
        assert_eq!(load_text(&file).expect("right").server.region, region, "{file}");
    }
}

#[test]
fn three_mistakes_are_three_problems_with_line_and_key() {
    let text = "[server]\nidle_timeout = \"30 parsecs\"\n\n[[backends]]\nname = \"store\"\nendpoint = \"http://a:1\"\n\
                concurency = 5\n[[routes]]\nbucket = \"*\"\nbackend = \"stor\"\n";
    let result = load_text(text);
    assert_eq!(places(result.clone()), ["2 server.idle_timeout", "7 backends[0].concurency", "10 routes[0].backend"]);
    let messages = messages(result);
    assert!(messages.contains("etc/gate.toml:7: backends[0].concurency: unknown key; the nearest known key is \"concurrency\"\n"));
    assert!(messages.contains("no backend is called \"stor\"; the nearest is \"store\"\n"), "{messages}");
}

#[test]
fn broken_syntax_hides_no_other_mistake_and_is_named_once() {
    let text = "[server]\nidle_timeout = 30s\nregion = \"\"\n[batch]\nconcurrency = many\nentries_max = \"x\"\nconcurrency = 3\n";
    assert_eq!(
        places(load_text(text)),
        ["2 server.idle_timeout", "3 server.region", "5 batch.concurrency", "6 batch.entries_max", "7 "]
    );
}

#[test]
fn a_broken_heading_makes_its_keys_no_mistakes() {
    let env = [("BATCHGATE__IDENTITIES__0__SECRET_KEY", "completes what cannot be seen")];
    assert_eq!(places(load_all("[server\nregion = \"x\"\n", &env, Vec::new())), ["1 "]);
    assert_eq!(places(load_text("[server\nregion = \"x\"\n")), ["1 "]);
}

#[test]
fn a_file_that_is_no_toml_at_all_is_refused_briefly() {
    let result = load_text(&"this is prose\n".repeat(2000));
    let named: Vec<String> = (1..=100).chain([1]).map(|line| format!("{line} ")).collect();
    assert_eq!(places(result.clone()), named);
    assert!(messages(result).contains("etc/gate.toml:1: 2000 lines are no TOML, and only the first of them are named\n"));
}

#[test]
fn a_problem_far_down_a_large_file_has_its_line() {
    // A look for each line from the start would take minutes.
    let table = |i: usize| format!("[[identities]]\nname = \"i{i}\"\naccess_key = \"K{i}\"\nsecret_key = \"s\"\n");
    let text: String = (0..2_000).map(table).collect();
    assert_eq!(load_text(&text).unwrap().identities.len(), 2_000);
    assert_eq!(places(load_text(&format!("{text}nmae = 1\n"))), ["8001 identities[1999].nmae"]);
    assert_eq!(places(load_text(&format!("{text}\r\n [[x\n"))), ["8002 x[0]"]);
}

#[test]
fn every_type_error_is_named_without_cascade() {
    let text = "[server]\nlisten = [\"here\", 3]\nmemory_bytes_max = \"1 pony\"\nrequests_max = -1\n[batch]\nentry_bytes = \"100MiB\"\n\
                window_bytes = 1.5\n[log]\naccess = \"yes\"\nformat = 1\nlevel = \"inof\"\n[tail]\nplain_share = 0.95\n[admin]\nlisten = [1]\n";
    let expected = [
        "2 server.listen[0]",
        "2 server.listen[1]",
        "3 server.memory_bytes_max",
        "4 server.requests_max",
        "7 batch.window_bytes",
        "9 log.access",
        "10 log.format",
        "11 log.level",
        "13 tail.plain_share",
        "15 admin.listen",
    ];
    assert_eq!(places(load_text(text)), expected);
}

#[test]
fn tables_and_lists_of_the_wrong_shape_are_named() {
    assert_eq!(
        places(load_text("server = 3\nbackends = \"x\"\nroutes = [1]\n[batch.tail]\n")),
        ["1 server", "2 backends", "3 routes[0]", "3 routes[0].backend", "3 routes[0].bucket", "4 batch.tail"]
    );
}

#[test]
fn rules_over_several_keys_are_kept() {
    let text = "[server]\nmemory_bytes_max = \"4MiB\"\nchunk_bytes_max = \"4MiB\"\nregion = \"a/b\"\ndomains = [\"http://x\", \"a.b\", \"A.b\"]\nrequests_max = 0\n\
                listen = []\nreload_interval = \"9ms\"\n[batch]\nentry_bytes = \"3MiB\"\nwindow_bytes = \"2MiB\"\n[tail]\nbackoff_base = \"3s\"\nqueue_wait = \"0s\"\nretry_share = 1.5\nbreaker_failures = 0\nbreaker_pause = \"0s\"\n[log]\nlevel = \"info,hyper=loud\"\n";
    let expected = [
        "2 server.memory_bytes_max",
        "4 server.region",
        "5 server.domains[0]",
        "5 server.domains[2]",
        "6 server.requests_max",
        "7 server.listen",
        "8 server.reload_interval",
        "10 batch.entry_bytes",
        "13 tail.backoff_base",
        "14 tail.queue_wait",
        "15 tail.retry_share",
        "16 tail.breaker_failures",
        "17 tail.breaker_pause",
        "19 log.level",
    ];
    let result = load_text(text);
    assert_eq!(places(result.clone()), expected);
    let text = messages(result);
    assert!(
        text.contains("twice batch.body_bytes_max (16MiB) are more than a quarter of server.memory_bytes_max (4MiB)"),
        "{text}"
    );
    assert!(text.contains("batch.entry_bytes (3MiB) is more than batch.window_bytes (2MiB)"), "{text}");
}

#[test]
fn a_base_path_is_plain_segments() {
    for path in ["", "/s3", "/a/b.c/~_-9"] {
        assert_eq!(load_text(&format!("[server]\nbase_path = {path:?}\n")).unwrap().server.base_path, path);
    }
    for path in ["/", "s3", "/s3/", "//s3", "/a//b", "/.", "/a/..", "/a b", "/a%20b", "/é", "/a?b"] {
        assert_eq!(places(load_text(&format!("[server]\nbase_path = {path:?}\n"))), ["2 server.base_path"], "{path}");
    }
}

#[test]
fn nobody_is_called_as_those_who_do_not_sign() {
    let text = |anonymous: bool| {
        format!("[server]\nanonymous = {anonymous}\n[[identities]]\nname = \"anonymous\"\naccess_key = \"K\"\nsecret_key = \"s\"\n")
    };
    assert!(load_text(&text(false)).is_ok());
    assert_eq!(places(load_text(&text(true))), ["4 identities[0].name"]);
}

#[test]
fn an_identity_has_accounts_at_backends_that_there_are() {
    let backends = "[[backends]]\nname = \"store-1.eu\"\nendpoint = \"http://a\"\n[[backends]]\nname = \"memory\"\nkind = \"embedded\"\n\
                    [[routes]]\nbucket = \"*\"\nbackend = \"memory\"\n[[identities]]\nname = \"a\"\naccess_key = \"K\"\nsecret_key = \"s\"\n";
    let good = "[identities.backend_credentials.\"store-1.eu\"]\naccess_key = \"AK\"\nsecret_key_file = \"secret\"\nsession_token = \"ST\"\n";
    let settings = load_text(&format!("{backends}{good}")).unwrap();
    let pair = &settings.identities[0].backend_credentials["store-1.eu"];
    assert_eq!((pair.access_key.as_str(), pair.secret_key.expose()), ("AK", "from-file"));
    let shown = toml::to_string(&settings).unwrap();
    assert!(shown.contains("[identities.backend_credentials.\"store-1.eu\"]\naccess_key = \"AK\"\n"), "{shown}");
    assert!(!shown.contains("from-file") && !shown.contains("ST"), "{shown}");
    for (table, expected) in [
        ("\"store-1.eu\" = { access_key = \"AK\" }", vec!["14 identities[0].backend_credentials.store-1.eu.secret_key"]),
        (
            "\"store-1.eu\" = { access_key = \"A/K\", secret_key = \"s\" }",
            vec!["14 identities[0].backend_credentials.store-1.eu.access_key"],
        ),
        (
            "\"store-1.eu\" = { access_key = \"A\", secret_key = \"s\", source = \"chain\" }",
            vec!["14 identities[0].backend_credentials.store-1.eu.source"],
        ),
        ("memory = { access_key = \"A\", secret_key = \"s\" }", vec!["14 identities[0].backend_credentials.memory"]),
        ("stor = { access_key = \"A\", secret_key = \"s\" }", vec!["14 identities[0].backend_credentials.stor"]),
        (
            "memory = 3",
            vec![
                "14 identities[0].backend_credentials.memory",
                "14 identities[0].backend_credentials.memory.access_key",
                "14 identities[0].backend_credentials.memory.secret_key",
            ],
        ),
    ] {
        assert_eq!(places(load_text(&format!("{backends}backend_credentials = {{ {table} }}\n"))), expected, "{table}");
    }
}

#[test]
fn a_batch_of_the_most_entries_must_fit_those_in_flight() {
    let result = load_text("[batch]\nentries_in_flight_max = 9999\n");
    assert_eq!(places(result.clone()), ["2 batch.entries_in_flight_max"]);
    assert!(messages(result).contains("batch.entries_max (10000) is more than batch.entries_in_flight_max (9999)"));
    let result = load_text("[batch]\nentries_max = 300000\n");
    assert_eq!(places(result.clone()), ["2 batch.entries_max"]);
    assert!(messages(result).contains("576 bytes for each of batch.entries_max (300000)"), "what is read of them has no place");
}

#[test]
fn backends_are_checked() {
    for (endpoint, good) in [
        ("http://127.0.0.1:8333", true),
        ("https://s3.example.com", true),
        ("http://[::1]:9", true),
        ("ftp://a", false),
        ("a:80", false),
        ("a", false),
        ("", false),
        ("http://a/b", false),
        ("http://a/", false),
        ("http://a?x", false),
        ("http://u:p@a", false),
        ("http://a:0", false),
        ("http://a:99999", false),
        ("http://a:", false),
        ("http://", false),
        ("http://a#f", false),
        ("http://:1", false),
    ] {
        let result = load_text(&format!("[[backends]]\nname = \"a\"\nendpoint = {endpoint:?}\n"));
        assert_eq!(result.is_ok(), good, "{endpoint} {result:?}");
        if let Err(problems) = result {
            assert_eq!((problems.len(), problems[0].key.as_str()), (1, "backends[0].endpoint"));
            assert!(!problems[0].message.contains("u:p"));
        }
    }
    let text = "[[backends]]\nname = \"a\"\nkind = \"memory\"\nconcurrency = 2\n[[backends]]\nname = \"a\"\nendpoint = \"http://a\"\n\
                concurrency_min = 0\naddressing = \"dns\"\nca_file = \"none.pem\"\n[[backends]]\nname = \"a b\"\nendpoint = \"http://a\"\nca_file = \"latin1.pem\"\n";
    let result = load_text(text);
    assert_eq!(
        places(result.clone()),
        [
            "1 backends",
            "1 backends[0].endpoint",
            "3 backends[0].kind",
            "4 backends[0].concurrency",
            "6 backends[1].name",
            "8 backends[1].concurrency_min",
            "9 backends[1].addressing",
            "10 backends[1].ca_file",
            "12 backends[2].name"
        ]
    );
    assert!(messages(result).contains("is not \"s3\" or \"embedded\""));
}

#[test]
fn each_kind_of_backend_has_keys_of_its_own() {
    let embedded = "[[backends]]\nname = \"a\"\nkind = \"embedded\"\n";
    assert_eq!(load_text(embedded).unwrap().backends, [BackendConfig::embedded("a")]);
    let small = load_text(&format!("{embedded}memory_bytes_max = \"8MiB\"\n")).unwrap();
    assert_eq!(small.backends[0].memory_bytes_max, 8 * MIB);
    // What is written out is read again, with the keys of the kind and no others.
    let shown = toml::to_string(&small).unwrap();
    assert!(!shown.contains("endpoint") && !shown.contains("credentials"), "{shown}");
    assert_eq!(load_text(&shown).unwrap(), small);
    let foreign = "endpoint = \"http://a\"\naddressing = \"path\"\ncredentials = { source = \"chain\" }\nca_file = \"ca.pem\"\n\
                   checksums = \"verify\"\npayload_signing = \"always\"\ncontent_md5 = true\nconnect_timeout = \"1s\"\nmemory_bytes_max = 0\n";
    let result = load_text(&format!("{embedded}{foreign}"));
    assert_eq!(
        places(result.clone()),
        [
            "4 backends[0].endpoint",
            "5 backends[0].addressing",
            "6 backends[0].credentials",
            "7 backends[0].ca_file",
            "8 backends[0].checksums",
            "9 backends[0].payload_signing",
            "10 backends[0].content_md5",
            "11 backends[0].connect_timeout",
            "12 backends[0].memory_bytes_max"
        ]
    );
    assert!(messages(result).contains("has no place in a backend of kind \"embedded\""));
    for (size, enough) in [("1MiB", true), ("1048575", false), ("1KiB", false)] {
        let result = load_text(&format!("{embedded}memory_bytes_max = \"{size}\"\n"));
        assert_eq!(result.is_ok(), enough, "{size}");
        if !enough {
            assert_eq!(places(result.clone()), ["4 backends[0].memory_bytes_max"]);
            assert!(messages(result).contains("at least 1MiB"));
        }
    }
    let result = load_text("[[backends]]\nname = \"a\"\nendpoint = \"http://a\"\nmemory_bytes_max = \"1GiB\"\n");
    assert_eq!(places(result), ["4 backends[0].memory_bytes_max"]);
}

#[test]
fn routes_are_checked() {
    let text = "[[backends]]\nname = \"a\"\nendpoint = \"http://a\"\n[[routes]]\nbucket = \"x*\"\nbackend = \"a\"\nbackend_bucket = \"y\"\n\
                [[routes]]\nbucket = \"x\"\nbackend = \"a\"\nbackend_bucket = \"/\"\n[[routes]]\nbucket = \"x\"\nbackend = \"a\"\n\
                [[routes]]\nbucket = \"*\"\nbackend = \"a\"\n[[routes]]\nbucket = \"b/\"\nbackend = \"a\"\n";
    assert_eq!(
        places(load_text(text)),
        [
            "7 routes[0].backend_bucket",
            "11 routes[1].backend_bucket",
            "13 routes[2].bucket",
            "19 routes[4].bucket",
            "19 routes[4].bucket"
        ]
    );
    assert_eq!(places(load_text("[[routes]]\nbucket = \"*\"\nbackend = \"a\"\n")), ["3 routes[0].backend"]);
}

#[test]
fn identities_are_checked() {
    let text = "[[identities]]\nname = \"a\"\naccess_key = \"K\"\nsecret_key = \"s\"\npolicy = \"read\"\n[[identities]]\nname = \"a\"\n\
                access_key = \"K\"\nsecret_key_file = \"none\"\npolicy_json = \"no\"\n[[identities]]\nname = \"\"\naccess_key = \"a/b\"\nsecret_key = \"\"\n\
                [[identities]]\nname = \"d\"\naccess_key_env = \"NONE\"\nsecret_key_file = \"empty\"\nsecret_key = \"x\"\npolicy = \"read-only\"\npolicy_file = \"policy.json\"\n\
                [[identities]]\n";
    assert_eq!(
        places(load_text(text)),
        [
            "5 identities[0].policy",
            "7 identities[1].name",
            "8 identities[1].access_key",
            "9 identities[1].secret_key_file",
            "10 identities[1].policy_json",
            "12 identities[2].name",
            "13 identities[2].access_key",
            "14 identities[2].secret_key",
            "17 identities[3].access_key_env",
            "18 identities[3].secret_key_file",
            "21 identities[3].policy_file",
            "22 identities[4].access_key",
            "22 identities[4].name",
            "22 identities[4].secret_key"
        ]
    );
}

#[test]
fn an_identities_file_adds_to_those_of_the_settings() {
    let inline = "[[identities]]\nname = \"a\"\naccess_key = \"K\"\nsecret_key = \"s\"\n";
    let with = |file: &str, inline: &str| load_text(&format!("identities_file = {file:?}\n{inline}"));
    let settings = with("sub/more.toml", inline).unwrap();
    let names: Vec<&str> = settings.identities.iter().map(|i| i.name.as_str()).collect();
    assert_eq!(names, ["a", "elsewhere"]);
    // A path in it starts at its own folder.
    assert_eq!(settings.identities[1].policy, PolicySource::Document("{\"of\": \"its own folder\"}".into()));
    assert_eq!(settings.identities_file, Some("etc/sub/more.toml".into()));
    // Written out, they stand where all stand, so that what is shown loads again.
    let shown = toml::to_string(&settings).unwrap();
    assert!(shown.contains("name = \"elsewhere\"") && !shown.contains("identities_file"), "{shown}");
    assert_eq!(with("identities.toml", "").unwrap().identities.len(), 1);
    assert_eq!(with("sub/nobody.toml", "").unwrap().identities, []);
    let env = [("BATCHGATE__IDENTITIES_FILE", "etc/sub/more.toml")];
    assert_eq!(load_all("", &env, Vec::new()).unwrap().identities.len(), 1);
}

#[test]
fn mistakes_in_an_identities_file_have_its_name_and_lines() {
    let inline = "[[identities]]\nname = \"a\"\naccess_key = \"K\"\nsecret_key = \"s\"\n";
    let with = |file: &str, inline: &str| messages(load_text(&format!("identities_file = {file:?}\n{inline}")));
    let expected = "etc/sub/broken.toml:2: identities[0].name: the name \"a\" is taken by identities[0].name (etc/gate.toml:3)\n\
                    etc/sub/broken.toml:7: identities[1].access_key: the access key is taken by identities[0].access_key (etc/gate.toml:4)\n\
                    etc/sub/broken.toml:8: identities[1].secret_key_file: cannot be read: entity not found; a relative path starts at etc/sub\n\
                    etc/sub/broken.toml:10: identities[2].name: the name \"b\" is taken by identities[1].name\n\
                    etc/sub/broken.toml:13: identities[2].polcy: unknown key; the nearest known key is \"policy\"\n\
                    etc/sub/broken.toml:14: server: unknown key; the nearest known key is \"identities\"\n";
    assert_eq!(with("sub/broken.toml", inline), expected);
    let syntax = with("sub/syntax.toml", inline);
    assert!(syntax.starts_with("etc/sub/syntax.toml:3: identities[0].access_key: ") && syntax.lines().count() == 1, "{syntax}");
    assert!(with("sub/heading.toml", inline).starts_with("etc/sub/heading.toml:1: "));
    assert!(with("sub/heading.toml", inline).lines().count() == 1);
    assert!(with("none.toml", inline).starts_with("etc/gate.toml:1: identities_file: etc/none.toml cannot be read: "));
    // Cut before its first table: nobody would be left.
    let empty = with("empty", inline);
    assert!(empty.contains("etc/empty:1: identities: is required"), "{empty}");
}

#[test]
fn credentials_are_checked() {
    let with = |credentials: &str| {
        load_text(&format!("[[backends]]\nname = \"a\"\nendpoint = \"http://a\"\ncredentials = {credentials}\n"))
    };
    assert_eq!(with("{}").unwrap().backends[0].credentials, CredentialsConfig::Chain);
    let pair = with("{ source = \"static\", access_key = \"k\", secret_key_file = \"secret\" }").unwrap();
    let CredentialsConfig::Static { access_key, secret_key, session_token: None } = &pair.backends[0].credentials else {
        panic!("{pair:?}")
    };
    assert_eq!((access_key.as_str(), secret_key.expose()), ("k", "from-file"));
    assert_eq!(places(with("{ access_key = \"k\", secret_key = \"s\" }")), ["4 backends[0].credentials.source"]);
    assert_eq!(places(with("{ source = \"iam\" }")), ["4 backends[0].credentials.source"]);
    assert_eq!(
        places(with("{ source = \"static\" }")),
        ["4 backends[0].credentials.access_key", "4 backends[0].credentials.secret_key"]
    );
    assert_eq!(places(with("{ source = \"chain\", profile = \"x\" }")), ["4 backends[0].credentials.profile"]);
}

#[test]
fn later_sources_win() {
    let file = "[server]\nregion = \"file\"\nrequests_max = 5\nidle_timeout = \"1s\"\n";
    let env = [("BATCHGATE__SERVER__REGION", "env"), ("BATCHGATE__SERVER__REQUESTS_MAX", "6")];
    let settings = load_all(file, &env, vec![flag("--region", "server.region", "flag")]).unwrap();
    assert_eq!(settings.server.region, "flag");
    assert_eq!(settings.server.requests_max, 6);
    assert_eq!(settings.server.idle_timeout, Duration::from_secs(1));
    assert_eq!(settings.server.header_timeout, Duration::from_secs(30));
}

#[test]
fn the_environment_sets_every_kind_of_value() {
    let env = [
        ("BATCHGATE__SERVER__LISTEN", "[\"127.0.0.1:1\", \"[::1]:2\"]"),
        ("BATCHGATE__LOG", "{ format = \"json\", access = false }"),
        ("BATCHGATE__LOG__LEVEL", "\"debug\""),
        ("BATCHGATE__BATCH__WINDOW_BYTES", "1MiB"),
        ("BATCHGATE__TAIL__PLAIN_SHARE", "0.5"),
        ("BATCHGATE__BACKENDS__0__NAME", "store"),
        ("BATCHGATE__BACKENDS__0__ENDPOINT", "http://a:1"),
        ("BATCHGATE__BACKENDS__0__ADDRESSING", "virtual"),
        ("BATCHGATE__ADMIN__LISTEN", "127.0.0.1:7"),
    ];
    let settings = load_all("", &env, Vec::new()).unwrap();
    assert_eq!(settings.server.listen, ["127.0.0.1:1".parse().unwrap(), "[::1]:2".parse().unwrap()]);
    assert_eq!(settings.log, LogConfig { level: "debug".into(), format: LogFormat::Json, access: false });
    assert_eq!((settings.batch.window_bytes, settings.tail.plain_share, settings.admin.listen.port()), (MIB, 0.5, 7));
    assert_eq!(settings.backends, [BackendConfig { addressing: Addressing::Virtual, ..BackendConfig::new("store", "http://a:1") }]);
}

#[test]
fn a_list_element_of_the_file_is_completed_by_the_environment() {
    let file = "[[identities]]\nname = \"a\"\naccess_key = \"K\"\nsecret_key = \"in-file\"\npolicy = \"read-only\"\n";
    let env = [
        ("BATCHGATE__IDENTITIES__0__SECRET_KEY_ENV", "REAL"),
        ("REAL", "from-env"),
        ("BATCHGATE__IDENTITIES__0__POLICY_JSON", "{\"a\": 1}"),
    ];
    let identity = load_all(file, &env, Vec::new()).unwrap().identities.remove(0);
    assert_eq!(identity.secret_key.expose(), "from-env");
    assert_eq!(identity.policy, PolicySource::Document("{\"a\": 1}".into()));
}

#[test]
fn mistakes_outside_the_file_name_their_variable_or_flag() {
    let env = [
        ("BATCHGATE__SERVER__REGON", "x"),
        ("BATCHGATE__SERVER__LISTEN", "127.0.0.1:1"),
        ("BATCHGATE__BACKENDS__3__NAME", "x"),
        ("BATCHGATE__LOG____LEVEL", "x"),
        ("BATCHGATE__BATCH__CONCURRENCY", "many"),
    ];
    let result = load_all("backends = []\n", &env, vec![flag("--admin-listen", "admin.listen", "nowhere")]);
    assert_eq!(
        places(result),
        [
            "environment variable BATCHGATE__BACKENDS__3__NAME backends.3.name",
            "environment variable BATCHGATE__BATCH__CONCURRENCY batch.concurrency",
            "environment variable BATCHGATE__LOG____LEVEL ",
            "environment variable BATCHGATE__SERVER__LISTEN server.listen",
            "environment variable BATCHGATE__SERVER__REGON server.regon",
            "flag --admin-listen admin.listen",
        ]
    );
}

#[test]
fn variables_that_kubernetes_injects_are_no_settings() {
    let env = [("BATCHGATE_SERVICE_HOST", "10.0.0.1"), ("BATCHGATE_PORT", "tcp://10.0.0.1:9000"), ("BATCHGATE_PORT_9000_TCP", "x")];
    assert_eq!(load_all("", &env, Vec::new()), Ok(Settings::default()));
}

#[test]
fn one_backend_without_routes_takes_every_bucket() {
    let settings = load_text("[[backends]]\nname = \"a\"\nendpoint = \"http://a\"\n").unwrap();
    assert_eq!(settings.routes, [RouteConfig { bucket: "*".into(), backend: "a".into(), rename: None }]);
}

#[test]
fn paths_start_at_the_folder_of_the_file_that_gives_them() {
    let settings = load_text("[server]\ntls = { cert_file = \"tls.crt\", key_file = \"tls.key\" }\n").unwrap();
    assert_eq!(
        settings.server.tls,
        Some(TlsConfig { cert_file: PathBuf::from("etc/tls.crt"), key_file: PathBuf::from("etc/tls.key") })
    );
    let env = [("BATCHGATE__IDENTITIES", "[{ name = \"a\", access_key = \"K\", secret_key_file = \"secret\" }]")];
    assert_eq!(load_all("", &env, Vec::new()).unwrap().identities[0].secret_key.expose(), "from-file");
    assert_eq!(
        places(load_text("[server]\ntls = { cert_file = \"none\" }\n")),
        ["2 server.tls.cert_file", "2 server.tls.key_file"]
    );
}

#[test]
fn secrets_are_never_shown() {
    let text = "[[identities]]\nname = \"a\"\naccess_key = \"K\"\nsecret_key = \"s3cr3t\"\nsession_token = \"t0k3n\"\n[[backends]]\nname = \"b\"\n\
                endpoint = \"http://a\"\ncredentials = { source = \"static\", access_key = \"AK\", secret_key = \"s3cr3t\", session_token = \"t0k3n\" }\n";
    let settings = load_text(text).unwrap();
    assert_eq!(settings.identities[0].secret_key.expose(), "s3cr3t");
    let shown =
        format!("{settings:?}{settings:#?}{}{}", toml::to_string(&settings).unwrap(), serde_json::to_string(&settings).unwrap());
    assert!(!shown.contains("s3cr3t") && !shown.contains("t0k3n"), "{shown}");
    let broken = text.replace("\"s3cr3t\"", "s3cr3t").replace("\"t0k3n\"", "['t0k3n']");
    let env = [("BATCHGATE__IDENTITIES__0__SECRET_KEY__X", "s3cr3t"), ("BATCHGATE__ROUTES", "s3cr3t")];
    let problems = format!("{:?}", load_all(&broken, &env, Vec::new()).unwrap_err());
    assert!(problems.contains("secret_key") && !problems.contains("s3cr3t") && !problems.contains("t0k3n"), "{problems}");
}

#[test]
fn the_example_of_several_stores_loads() {
    let settings = load_text(SEVERAL).unwrap();
    assert_eq!((settings.backends.len(), settings.routes.len(), settings.identities.len()), (2, 3, 2));
}

#[test]
fn the_minimal_example_loads() {
    let settings = load_text(MINIMAL).unwrap();
    assert_eq!((settings.backends.len(), settings.routes.len(), settings.identities.len()), (1, 1, 1));
    assert_eq!(settings.identities[0].policy, PolicySource::ReadOnly);
}

#[test]
fn the_reference_is_the_defaults() {
    assert_eq!(load_text(REFERENCE), Ok(Settings::default()));
    // With the lines taken in that have no place in the defaults, each shows the default of its key or an example.
    let all: Vec<&str> = REFERENCE
        .lines()
        .map(|l| l.strip_prefix('#').filter(|l| l.starts_with(|c: char| c == '[' || c.is_ascii_lowercase())).unwrap_or(l))
        .collect();
    let settings = load_text(&all.join("\n")).unwrap();
    let tls = Some(TlsConfig { cert_file: "etc/tls.crt".into(), key_file: "etc/tls.key".into() });
    let identity = IdentityConfig {
        name: "trainer".into(),
        access_key: "GK".into(),
        secret_key: Secret::new("GS"),
        session_token: None,
        policy: PolicySource::ReadOnly,
        backend_credentials: BTreeMap::new(),
    };
    let elsewhere = load_text("identities_file = \"identities.toml\"").unwrap().identities.remove(0);
    assert_eq!(
        settings,
        Settings {
            identities_file: Some("etc/identities.toml".into()),
            server: ServerConfig { tls, ..ServerConfig::default() },
            backends: vec![BackendConfig::new("store", "http://127.0.0.1:8333")],
            routes: vec![RouteConfig { bucket: "photos".into(), backend: "store".into(), rename: Some("photos-2024".into()) }],
            identities: vec![identity, elsewhere],
            ..Settings::default()
        }
    );
}

/// Each table of the schema: how a file opens it, and its keys.
fn tables() -> Vec<(String, Vec<String>)> {
    let schema = schema();
    let keys = |at: &serde_json::Value| at["properties"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let mut tables = Vec::new();
    for (section, property) in schema["properties"].as_object().unwrap() {
        let list = property.get("items");
        if section == "identities_file" {
            tables.push((String::new(), vec![section.clone()]));
            continue;
        }
        let target = list.unwrap_or(property)["$ref"].as_str().unwrap().trim_start_matches('#');
        let heading = if list.is_some() { format!("[[{section}]]") } else { format!("[{section}]") };
        tables.push((heading, keys(schema.pointer(target).unwrap())));
    }
    tables.push(("[server.tls]".into(), keys(&schema["$defs"]["TlsConfig"])));
    tables.push((
        "[[backends]]\n[backends.credentials]\nsource = \"static\"".into(),
        keys(&schema["$defs"]["BackendConfig"]["properties"]["credentials"]),
    ));
    tables.push((
        "[[identities]]\n[identities.backend_credentials.store]".into(),
        keys(&schema["$defs"]["IdentityConfig"]["properties"]["backend_credentials"]["additionalProperties"]),
    ));
    tables
}

#[test]
fn schema_reference_and_loader_know_the_same_keys() {
    let mut count = 0;
    for (heading, keys) in tables() {
        let probe = messages(load_text(&format!("{heading}\nzzz = 1\n")));
        let everywhere = heading.is_empty() || heading == "[server.tls]";
        assert!(probe.contains("zzz: unknown key"), "{probe}");
        for key in keys {
            count += 1;
            if key != "source" {
                let result = load_text(&format!("{heading}\n{key} = 1979-05-27\n"));
                assert!(!messages(result).contains("unknown key"), "{heading} {key}");
            }
            let part =
                REFERENCE.split("# --- ").find(|part| part.contains(heading.split('\n').next().unwrap()) || everywhere).unwrap();
            let part = if everywhere { REFERENCE } else { part };
            assert!(
                part.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| word == key),
                "{heading} {key} is not in the reference"
            );
        }
    }
    assert!(count > 60, "{count}");
    // The other way round: whatever settings have when written out is in the schema.
    let shown = toml::Table::try_from(load_text(MINIMAL).unwrap()).unwrap();
    let known: BTreeSet<String> = tables().into_iter().flat_map(|(_, keys)| keys).collect();
    for (section, value) in shown {
        let table = value.as_array().map_or(&value, |list| &list[0]).as_table().unwrap();
        assert!(table.keys().all(|key| known.contains(key)), "{section}: {table:?}");
    }
}

#[test]
fn schema_gives_defaults_and_what_is_required() {
    let schema = schema();
    assert_eq!(schema["$defs"]["BatchConfig"]["properties"]["window_bytes"]["default"], "32MiB");
    assert_eq!(schema["$defs"]["BackendConfig"]["required"], serde_json::json!(["name"]));
    assert_eq!(schema["$defs"]["BackendConfig"]["else"]["required"], serde_json::json!(["endpoint"]));
    assert_eq!(schema["$defs"]["ServerConfig"]["additionalProperties"], false);
    assert!(schema["$defs"]["IdentityConfig"]["properties"]["policy_file"]["description"].is_string());
}

#[test]
fn durations_and_sizes_refuse_what_is_ambiguous() {
    for text in ["", "30", "s", "-1s", "1.5s", "1d", "1 h 3 m", "30sec", "99999999999999999999s", "8761h"] {
        assert!(parse_duration(text).is_err(), "{text}");
    }
    for text in ["", "MiB", "-1", "1.5MiB", "1MB", "1mib", "99999999999999999999", "9000000000000TiB"] {
        assert!(parse_size(text).is_err(), "{text}");
    }
    assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
    assert_eq!(parse_duration("1h"), Ok(Duration::from_secs(3600)));
    assert_eq!(parse_size("512KiB"), Ok(512 * KIB));
    assert_eq!((format_duration(Duration::from_secs(90)), format_size(1536)), ("90s".into(), "1536".into()));
}

proptest! {
    #[test]
    fn prop_durations_round_trip(millis in prop_oneof![0_u64..5000, 0_u64..31_536_000_000, (0_u64..8760).prop_map(|h| h * 3_600_000)]) {
        let duration = Duration::from_millis(millis);
        prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
    }

    #[test]
    fn prop_sizes_round_trip(bytes in prop_oneof![0_u64..5000, 0_u64..(1 << 62), (0_u64..5000).prop_map(|n| n << 20)]) {
        prop_assert_eq!(parse_size(&format_size(bytes)), Ok(bytes));
    }

    #[test]
    fn prop_no_text_panics(text in "[\\[\\]{}a-z_=\"'\n0-9 .,#-]{0,200}", variable in "[A-Z0-9_]{0,30}", value in ".{0,40}") {
        let env = [(format!("BATCHGATE__{variable}"), value)];
        let env: Vec<(&str, &str)> = env.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        if let Err(problems) = load_all(&text, &env, Vec::new()) {
            prop_assert!(!problems.is_empty());
        }
    }
}
