//! Where to listen.

use super::*;

#[test]
fn addresses_that_are_in_each_others_way_are_a_problem() {
    let problems = |listen: &str, admin: &str| -> Vec<String> {
        let text = format!("[server]\nlisten = {listen}\n[admin]\nlisten = \"{admin}\"\n");
        load_text(&text).err().unwrap_or_default().iter().map(|p| format!("{}: {}", p.key, p.message)).collect()
    };
    let said =
        "admin.listen: admin.listen (127.0.0.1:7) and server.listen (127.0.0.1:7) are the same port; write another for one of them";
    assert_eq!(problems("[\"127.0.0.1:8\", \"127.0.0.1:7\"]", "127.0.0.1:7"), [said]);
    let twin = problems("[\"0.0.0.0:8\", \"127.0.0.1:8\"]", "127.0.0.1:7");
    assert_eq!(twin, ["server.listen[1]: 127.0.0.1:8 is the same port as 0.0.0.0:8 before it"]);
    for (listen, admin, count) in [
        ("0.0.0.0:7", "127.0.0.1:7", 1),
        ("127.0.0.1:7", "0.0.0.0:7", 1),
        ("[::]:7", "[::1]:7", 1),
        ("127.0.0.1:7", "127.0.0.2:7", 0),
        ("127.0.0.1:7", "[::1]:7", 0),
        ("127.0.0.1:0", "127.0.0.1:0", 0),
        ("127.0.0.1:7", "127.0.0.1:8", 0),
    ] {
        assert_eq!(problems(&format!("[{listen:?}]"), admin).len(), count, "{listen} {admin}");
    }
    // Where the other one is a default, the one that was given is where to look.
    let problems = load_text("[server]\nlisten = [\"127.0.0.1:9001\"]\n").expect_err("that of admin.listen");
    assert_eq!(problems[0].key, "server.listen");
}

#[test]
fn a_variable_for_a_list_that_is_none_is_told_how_it_is_written() {
    for (name, text, example) in [
        ("BATCHGATE__SERVER__LISTEN", "0.0.0.0:9000", "[\"0.0.0.0:9000\"]"),
        ("BATCHGATE__SERVER__DOMAINS", "s3.example.org", "[\"s3.example.com\"]"),
    ] {
        let problems = load_all("", &[(name, text)], Vec::new()).expect_err("no list");
        assert_eq!(problems[0].message, format!("expected a list, written such as '{example}'"));
    }
}
