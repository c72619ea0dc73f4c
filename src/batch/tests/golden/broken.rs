//! Answers that no reader may take for whole, each made from a good one by one change.

use super::*;

/// One change of an answer.
struct Change {
    name: &'static str,
    /// The good answer that it is made from.
    from: &'static str,
    why: &'static str,
    change: Box<dyn Fn(&mut Golden)>,
}

fn change(name: &'static str, from: &'static str, why: &'static str, change: impl Fn(&mut Golden) + 'static) -> Change {
    Change { name, from, why, change: Box::new(change) }
}

/// Where `needle` is for the `nth` time, from 0.
fn find(octets: &[u8], needle: &str, nth: usize) -> usize {
    let mut found = octets.windows(needle.len()).enumerate().filter(|(_, window)| *window == needle.as_bytes());
    found.nth(nth).expect(needle).0
}

/// Puts `new` in the place of the `nth` `old`.
fn replace(old: &'static str, nth: usize, new: &'static str) -> impl Fn(&mut Golden) {
    move |golden| {
        let at = find(&golden.body, old, nth);
        golden.body.splice(at..at + old.len(), new.bytes());
    }
}

/// Cuts the answer in the middle, `after` octets behind the `nth` `mark`.
fn cut(mark: &'static str, nth: usize, after: usize) -> impl Fn(&mut Golden) {
    move |golden| {
        let at = find(&golden.body, mark, nth);
        golden.body.truncate(at + after);
    }
}

fn set(member: &'static str, value: impl Into<Value> + Clone + 'static) -> impl Fn(&mut Golden) {
    move |golden| golden.json[member] = value.clone().into()
}

/// All of them.
pub(super) fn all() -> Vec<Golden> {
    let good: Vec<_> = examples::all().iter().map(Example::render).collect();
    let make = |Change { name, from, why, change }: Change| {
        let good = good.iter().find(|golden| golden.name == from).expect(from);
        let mut golden = Golden { name: name.into(), ..good.clone() };
        change(&mut golden);
        assert!(golden.body != good.body || golden.json != good.json, "{name} is not changed");
        let json = golden.json.as_object_mut().expect("an object");
        json.remove("parts");
        json.remove("summary");
        json.insert("why".into(), why.into());
        golden
    };
    cuts().into_iter().chain(frames()).chain(counts()).chain(tars()).map(make).collect()
}

const PLAIN: &str = "multipart-plain";

/// Octets that are missing at the end, or are too many there.
fn cuts() -> Vec<Change> {
    vec![
        change("cut-to-nothing", PLAIN, "there is nothing", |golden| golden.body.clear()),
        change("cut-in-the-first-delimiter", PLAIN, "it ends in the first delimiter", |golden| golden.body.truncate(20)),
        change("cut-in-a-header-block", PLAIN, "it ends in the headers of a part", cut("batch-status", 1, 14)),
        change("cut-behind-a-header-block", PLAIN, "it ends before the body of a part", cut("number two", 0, 0)),
        change("cut-in-a-body", PLAIN, "it ends in the body of a part", cut("number two", 0, 5)),
        change("cut-behind-a-body", PLAIN, "it ends behind a body, before a delimiter", cut("the first", 0, 9)),
        change("cut-behind-a-delimiter", PLAIN, "it ends behind a delimiter", cut("--0011", 1, 36)),
        change("cut-before-the-close", PLAIN, "all parts are there but the closing delimiter is not", cut("\r\n--0011", 2, 0)),
        change("cut-in-the-close", PLAIN, "it ends in the closing delimiter, before its two dashes", cut("--0011", 3, 34)),
        change("cut-before-the-last-line-end", PLAIN, "the closing delimiter has no line end", |golden| {
            golden.body.truncate(golden.body.len() - 2);
        }),
        change(
            "cut-before-the-summary",
            "multipart-stop",
            "the summary that is owed and the close are missing",
            cut("\r\n--0011", 1, 0),
        ),
        change("octets-after-the-close", PLAIN, "something follows the closing delimiter", |golden| golden.body.push(b'\n')),
        change("a-second-answer-after-the-close", PLAIN, "another answer follows", |golden| {
            let twice = golden.body.clone();
            golden.body.extend(twice);
        }),
        change("octets-before-the-first-delimiter", PLAIN, "a line precedes the first delimiter", |golden| {
            golden.body.splice(0..0, *b"\r\n");
        }),
    ]
}

/// Delimiters and headers that are not what they must be.
fn frames() -> Vec<Change> {
    let other = "multipart/mixed; boundary=00112233445566778899aabbccddee00";
    vec![
        change("wrong-delimiter", PLAIN, "a delimiter is not the one that Content-Type announces", replace("ddeeff", 1, "ddeef0")),
        change("wrong-close", PLAIN, "the closing delimiter is another one", replace("ddeeff--", 0, "ddeef0--")),
        change(
            "boundary-of-another-answer",
            PLAIN,
            "no delimiter is the one that Content-Type announces",
            set("content_type", other),
        ),
        change("boundary-missing", PLAIN, "Content-Type announces no boundary", set("content_type", "multipart/mixed")),
        change(
            "body-longer-than-announced",
            PLAIN,
            "a body has one octet more than its content-length",
            replace("the first", 0, "the first!"),
        ),
        change(
            "body-shorter-than-announced",
            PLAIN,
            "a body has one octet less than its content-length",
            replace("the first", 0, "the fist"),
        ),
        change("length-missing", PLAIN, "a part has no content-length", replace("content-length: 12\r\n", 0, "")),
        change(
            "length-twice",
            PLAIN,
            "a part has two content-lengths",
            replace("content-length: 12", 0, "content-length: 12\r\ncontent-length: 11"),
        ),
        change("length-negative", PLAIN, "a content-length is no number", replace("content-length: 12", 0, "content-length: -12")),
        change(
            "length-not-a-number",
            PLAIN,
            "a content-length is no number",
            replace("content-length: 12", 0, "content-length: 0xc"),
        ),
        change(
            "length-beyond-reason",
            PLAIN,
            "a content-length is larger than any answer can be",
            replace("content-length: 12", 0, "content-length: 99999999999999999999999999"),
        ),
        change("content-id-missing", PLAIN, "a part has no content-id", replace("content-id: <1@0000000000004f0c>\r\n", 0, "")),
        change("content-id-without-index", PLAIN, "a content-id names no index", replace("<1@", 0, "<@")),
        change("content-id-negative", PLAIN, "a content-id names no index", replace("<1@", 0, "<-1@")),
        change(
            "content-id-without-brackets",
            PLAIN,
            "a content-id has no brackets",
            replace("<1@0000000000004f0c>", 0, "1@0000000000004f0c"),
        ),
        change("status-missing", PLAIN, "a part has no batch-status", replace("batch-status: 200\r\n", 1, "")),
        change("status-not-a-number", PLAIN, "a batch-status is no number", replace("batch-status: 200", 1, "batch-status: OK")),
        change(
            "header-without-colon",
            PLAIN,
            "a line of a header block has no colon",
            replace("x-amz-meta-label: 7", 1, "x-amz-meta-label 7"),
        ),
    ]
}

/// Parts that are too few, too many, or not those that are owed.
fn counts() -> Vec<Change> {
    let last_part_again = |golden: &mut Golden| {
        let (at, end) = (find(&golden.body, "\r\n--0011", 1), find(&golden.body, "\r\n--0011", 2));
        let part = golden.body[at..end].to_vec();
        golden.body.splice(end..end, part);
    };
    let without_the_second = |golden: &mut Golden| {
        let (at, end) = (find(&golden.body, "\r\n--0011", 0), find(&golden.body, "\r\n--0011", 1));
        golden.body.drain(at..end);
    };
    let summary_first = |golden: &mut Golden| {
        let (at, end) = (find(&golden.body, "\r\n--0011", 1), find(&golden.body, "\r\n--0011", 2));
        let summary: Vec<_> = golden.body.drain(at..end).collect();
        let at = find(&golden.body, "\r\n--0011", 0);
        golden.body.splice(at..at, summary);
    };
    vec![
        change("index-twice", PLAIN, "two parts have the same index", replace("<2@", 0, "<1@")),
        change("index-out-of-range", PLAIN, "an index is not below Batch-Count", replace("<2@", 0, "<3@")),
        change("part-missing", PLAIN, "there is a part less than Batch-Count, and no summary", without_the_second),
        change("part-too-many", PLAIN, "a part comes a second time", last_part_again),
        change("count-larger", PLAIN, "Batch-Count announces one part more", set("batch_count", 4)),
        change("count-smaller", PLAIN, "Batch-Count announces one part less", set("batch_count", 2)),
        change(
            "omitted-part-without-summary",
            "multipart-omit",
            "a part was omitted, and the summary that is owed is missing",
            |golden| {
                let (at, end) = (find(&golden.body, "\r\n--0011", 1), find(&golden.body, "\r\n--0011", 2));
                golden.body.drain(at..end);
            },
        ),
        change(
            "summary-owes-more",
            "multipart-omit",
            "the summary's Delivered is larger than what was",
            replace("Delivered\":2", 0, "Delivered\":3"),
        ),
        change(
            "summary-owes-less",
            "multipart-omit",
            "the summary's Delivered is smaller than what was",
            replace("Delivered\":2", 0, "Delivered\":1"),
        ),
        change("summary-not-last", "multipart-omit", "a part follows the summary", summary_first),
        change("summary-twice", "multipart-omit", "there are two summaries", last_part_again),
        change("summary-not-json", "multipart-omit", "the summary is no JSON", replace("{\"Entries\"", 0, "[\"Entries\"")),
    ]
}

/// Where the `nth` member's header begins, from 0.
fn member(octets: &[u8], nth: usize) -> usize {
    find(octets, "ustar\0", nth) - 257
}

/// Archives.
fn tars() -> Vec<Change> {
    const TAR: &str = "tar-plain";
    let owes = |old: &'static str, new: &'static str| replace(old, 0, new);
    vec![
        change("tar-cut-to-nothing", TAR, "there is nothing", |golden| golden.body.clear()),
        change("tar-cut-in-a-header", TAR, "it ends in a member's header", |golden| golden.body.truncate(1024 + 100)),
        change("tar-cut-in-a-body", TAR, "it ends in a member's body", |golden| golden.body.truncate(1024 + 512 + 100)),
        change("tar-cut-between-members", TAR, "it ends before a member's header", |golden| golden.body.truncate(1024)),
        change("tar-cut-before-the-summary", TAR, "the summary and the end are missing", |golden| {
            let at = member(&golden.body, 3);
            golden.body.truncate(at);
        }),
        change("tar-cut-before-the-end", TAR, "the two zero blocks are missing", |golden| {
            golden.body.truncate(golden.body.len() - 1024)
        }),
        change("tar-cut-in-the-end", TAR, "one of the two zero blocks is missing", |golden| {
            golden.body.truncate(golden.body.len() - 512)
        }),
        change("tar-without-summary", TAR, "it is ended, but without the summary", |golden| {
            let (at, end) = (member(&golden.body, 3), golden.body.len() - 1024);
            golden.body.drain(at..end);
        }),
        change("tar-member-missing", TAR, "a member less than the summary's Delivered", |golden| {
            let (at, end) = (member(&golden.body, 1), member(&golden.body, 2));
            golden.body.drain(at..end);
        }),
        change("tar-member-twice", TAR, "two members have the same name", |golden| {
            let (at, end) = (member(&golden.body, 1), member(&golden.body, 2));
            let again = golden.body[at..end].to_vec();
            golden.body.splice(end..member(&golden.body, 3), again);
        }),
        change("tar-summary-not-last", TAR, "a member follows the summary", |golden| {
            let (at, end) = (member(&golden.body, 3), golden.body.len() - 1024);
            let summary: Vec<_> = golden.body.drain(at..end).collect();
            let at = member(&golden.body, 2);
            golden.body.splice(at..at, summary);
        }),
        change(
            "tar-summary-owes-more",
            TAR,
            "the summary's Delivered is larger than what was",
            owes("Delivered\":3", "Delivered\":4"),
        ),
        change("tar-wrong-sum", TAR, "the checksum of a header is wrong", replace("train/2", 0, "train/4")),
        change("tar-octets-after-the-end", TAR, "something follows the two zero blocks", |golden| golden.body.extend([b'x'; 512])),
    ]
}
