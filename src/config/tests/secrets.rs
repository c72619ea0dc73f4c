//! No secret is repeated, wherever it stands by a slip; and what settings name has a largest size.

use super::*;

/// As stores give them out: 40 of base64, 40 of base32, hexadecimal; one that a person made up; the token of a session.
const SECRETS: [&str; 5] = [
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzRjR2P8xKe",
    "MZXW6YTBOI5DG4DFNZXW6YTBOI5DG4DFNZXW6YTB",
    "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567",
    "THE SECRET",
    "IQoJb3JpZ2luX2VjEJr//////////wEaCXVzLWVhc3QtMSJHMEUCIQ==",
];

/// All that is said of settings, for people and for scripts.
fn said(text: &str, env: &[(&str, &str)]) -> String {
    match load_all(text, env, Vec::new()) {
        Ok(_) => String::new(),
        Err(problems) => format!("{problems:?}{}", messages(Err(problems.clone()))),
    }
}

#[track_caller]
fn refused_without(secret: &str, shown: &str, what: &str) {
    assert!(!shown.is_empty(), "{what:?} is no problem");
    assert!(!shown.contains(&secret[..10]) && !shown.contains(&secret[secret.len() - 10..]), "{what:?}: {shown}");
}

#[test]
fn a_secret_in_the_place_of_another_value_is_not_repeated() {
    let with_secrets: Vec<_> = tables().into_iter().filter(|(_, keys)| keys.iter().any(|key| key.contains("key"))).collect();
    assert_eq!(with_secrets.len(), 4, "identities, server.tls, credentials, backend_credentials: {with_secrets:?}");
    for (secret, (heading, keys)) in SECRETS.iter().flat_map(|secret| with_secrets.iter().map(move |table| (secret, table))) {
        // A name is shown wherever its identity does something.
        for key in keys.iter().filter(|key| *key != "name") {
            let heading = if key == "source" { "[[backends]]\n[backends.credentials]" } else { heading };
            for value in ["%", "[%]", "@", "\"@", "'''@", "\"a\" %", "{ % = 1 }", "[\"a\", @]"] {
                let line = format!("{key} = {}", value.replace('@', secret).replace('%', &format!("{secret:?}")));
                refused_without(secret, &said(&format!("{heading}\n{line}\n"), &[]), &line);
            }
        }
        // An access key that is taken.
        let one = format!("[[identities]]\nname = \"a\"\naccess_key = {secret:?}\nsecret_key = \"s\"\n");
        let two = one.replace("\"a\"", "\"b\"");
        refused_without(secret, &said(&format!("{one}{two}"), &[]), "twice");
    }
}

#[test]
fn a_secret_in_the_place_of_a_key_is_not_repeated() {
    let lines =
        ["@ = 1", "% = 1", "@", "%", "= @", "[@]", "[%]", "[[%]]", "[identities.%]", "a.% = 1", "secret_key.% = 1", "secret_key %"];
    for secret in SECRETS {
        for line in lines {
            let line = line.replace('@', secret).replace('%', &format!("{secret:?}"));
            for heading in ["", "[[identities]]", "[[backends]]\n[backends.credentials]", "[server.tls]", "[batch]"] {
                refused_without(secret, &said(&format!("{heading}\n{line}\n"), &[]), &line);
            }
        }
    }
    // A slip is shown.
    let shown = said("[[identities]]\nsecretKey = 1\n[batch]\nno-such = 1\n", &[]);
    assert!(shown.contains("identities[0].secretKey: unknown key") && shown.contains("batch.no-such: unknown key"), "{shown}");
}

#[test]
fn a_secret_in_the_environment_is_not_repeated() {
    let paths = ["SECRET_KEY_ENV", "SECRET_KEY_FILE", "ACCESS_KEY_ENV", "POLICY", "POLICY_FILE", "POLICY_JSON", "SECRET_KEY__X"];
    for (secret, path) in SECRETS.iter().flat_map(|secret| paths.iter().map(move |path| (secret, path))) {
        let name = format!("BATCHGATE__IDENTITIES__0__{path}");
        let shown = said("", &[(&name, secret)]);
        assert!(shown.contains(&name));
        refused_without(secret, &shown, path);
    }
}

#[test]
fn a_variable_that_is_missing_is_found_by_its_place() {
    let text = "[[identities]]\nname = \"a\"\naccess_key = \"K\"\nsecret_key_env = \"THE SECRET\"\n";
    let expected = "etc/gate.toml:4: identities[0].secret_key_env: the environment has no variable of this name; the secret_key \
                    itself goes into \"secret_key\"\n";
    assert_eq!(messages(load_text(text)), expected);
}

#[test]
fn a_file_has_a_largest_size_by_what_it_is_for() {
    let identity = "[[identities]]\nname = \"a\"\naccess_key = \"K\"\n";
    let tls = |cert: &str| format!("[server]\ntls = {{ cert_file = {cert:?}, key_file = \"1MiB\" }}");
    for (text, expected) in [
        // It is read, and found to have no identities.
        ("identities_file = \"16MiB\"".to_owned(), vec!["1 identities"]),
        ("identities_file = \"16MiB1\"".to_owned(), vec!["1 identities_file"]),
        ("identities_file = \"\"".to_owned(), vec!["1 identities_file"]),
        (format!("{identity}secret_key = \"s\"\npolicy_file = \"16MiB\"\n"), vec!["5 identities[0].policy_file"]),
        (format!("{identity}secret_key_file = \"64KiB\"\n"), vec![]),
        (format!("{identity}secret_key_file = \"1MiB\"\n"), vec!["4 identities[0].secret_key_file"]),
        (tls("1MiB"), vec![]),
        (tls("16MiB"), vec!["2 server.tls.cert_file"]),
        ("[[backends]]\nname = \"a\"\nendpoint = \"http://a\"\nca_file = \"16MiB\"".to_owned(), vec!["4 backends[0].ca_file"]),
    ] {
        let found = load_text(&text).map_or_else(|problems| places(Err(problems)), |_| Vec::new());
        assert_eq!(found, expected, "{text}");
    }
    // One that is there is named.
    assert!(messages(load_text(&format!("{identity}secret_key_file = \"1MiB\"\n"))).contains("etc/1MiB cannot be read: "));
}

#[test]
fn a_secret_is_one_line() {
    for way in ["secret_key_file = \"two-lines\"", "secret_key = \"two\\tcolumns\""] {
        let result = load_text(&format!("[[identities]]\nname = \"a\"\naccess_key = \"K\"\n{way}\n"));
        assert!(messages(result).contains("has a line break or another control character in it"), "{way}");
    }
}
