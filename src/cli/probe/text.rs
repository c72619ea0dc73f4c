//! What a probe found, for people. Every line of a setting can be pasted into the file: all else is a comment of it. Each is one
//! setting, with whether it works or what to change; what is the matter, and what to do, stand on lines of their own. Pure.

use std::fmt::Write as _;

use super::report::{Account, Outcome, Report, Setting, Taken};

/// Longest line, unless one word is longer.
const COLUMNS_MAX: usize = 110;

/// Most identities of one account that are named.
const NAMED_MAX: usize = 5;

/// The whole report, which ends with a newline.
pub fn text(report: &Report) -> String {
    let mut out = format!("backend {}", report.backend);
    if !report.endpoint.is_empty() {
        let _ = write!(out, " at {}", report.endpoint);
    }
    out.push_str(if report.reached { "\n" } else { ": FAILED\n" });
    for note in &report.notes {
        comment(&mut out, "  # ", note);
    }
    for problem in &report.problems {
        comment(&mut out, "  # PROBLEM: ", &problem.why);
        comment(&mut out, "  #   to do: ", &problem.fix);
    }
    for (at, setting) in report.settings.iter().enumerate() {
        let Setting { key, configured, set, outcome, why } = setting;
        let said = match outcome {
            Outcome::Works => "works".to_owned(),
            Outcome::Change => format!("CHANGE to this, from {configured}"),
            Outcome::Fails => "FAILED: nothing that can be set here works".to_owned(),
            Outcome::Untried => "not tried".to_owned(),
            Outcome::Unanswered => "not known: there was no answer".to_owned(),
        };
        let line = format!("{key} = {set}");
        let _ = writeln!(out, "  {line:<32}  # {said}");
        let is_said_of_the_next = report.settings.get(at + 1).is_some_and(|next| next.why == *why);
        if !why.is_empty() && !is_said_of_the_next {
            comment(&mut out, "    # ", why);
        }
    }
    accounts(&mut out, report);
    for key in &report.left_behind {
        comment(&mut out, "  # ", &format!("LEFT BEHIND: the probe object {key} could not be deleted; delete it by hand"));
    }
    out
}

fn accounts(out: &mut String, report: &Report) {
    for Account { identities, outcome, code, why, fix } in &report.accounts {
        let more = identities.len().saturating_sub(NAMED_MAX);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let whose = format!("account of {}{more}", identities[..identities.len().min(NAMED_MAX)].join(", "));
        let said = match (outcome, code) {
            (Taken::Works, None) => "works".to_owned(),
            (Taken::Works, Some(code)) => format!("not refused, but it may not list buckets ({code})"),
            (Taken::Refused, _) => "REFUSED".to_owned(),
            (Taken::Unanswered, _) => "not known: there was no answer".to_owned(),
        };
        comment(out, "  # ", &format!("{whose}: {said}"));
        if *outcome != Taken::Works {
            comment(out, "  #   ", why);
            comment(out, "  #   to do: ", fix);
        }
    }
    if report.accounts_untried > 0 {
        let more = if report.accounts.is_empty() { "" } else { "more " };
        comment(out, "  # ", &format!("{more}accounts of identities that were not tried: {}", report.accounts_untried));
    }
}

/// A comment over as many lines as it takes: the first begins with `start`, the others as far to the right.
fn comment(out: &mut String, start: &str, words: &str) {
    let hash = start.find('#').map_or(0, |at| at + 1);
    let further = format!("{}{}", &start[..hash], " ".repeat(start.len() - hash));
    let mut line = start.to_owned();
    let mut width = start.len();
    let mut is_empty = true;
    for word in words.split_whitespace() {
        let length = word.chars().count();
        if !is_empty && width + 1 + length > COLUMNS_MAX {
            let _ = writeln!(out, "{line}");
            (line, width, is_empty) = (further.clone(), further.len(), true);
        }
        if !is_empty {
            line.push(' ');
            width += 1;
        }
        line.push_str(word);
        width += length;
        is_empty = false;
    }
    let _ = writeln!(out, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::probe::diagnosis::{Kind, Problem};

    fn whole() -> Report {
        let mut report = Report { reached: true, notes: vec!["answered".into()], ..Report::new("store", "http://a:1") };
        report.problems.push(Problem::new(Kind::Bucket, "the bucket \"b\" does not exist", "make it"));
        report.found("checksums", "forward", "verify", Outcome::Change, "an upload is refused: 501 NotImplemented");
        report.found("content_md5", false, true, Outcome::Works, "");
        report.accounts.push(Account {
            identities: (0..7).map(|n| format!("i{n}")).collect(),
            outcome: Taken::Refused,
            code: Some("InvalidAccessKeyId".into()),
            why: "the store does not know the access key \"AK\" (403 InvalidAccessKeyId)".into(),
            fix: "set it anew ".repeat(20),
        });
        report.accounts.push(Account {
            identities: vec!["j".into()],
            outcome: Taken::Works,
            code: Some("AccessDenied".into()),
            why: String::new(),
            fix: String::new(),
        });
        report.accounts_untried = 3;
        report.left_behind.push("k".into());
        report
    }

    #[test]
    fn every_line_is_toml_and_fits() {
        let text = text(&whole());
        let lines: String = text.lines().skip(1).map(|line| format!("{line}\n")).collect();
        let table: toml::Table = lines.parse().expect("TOML");
        assert_eq!((table["checksums"].as_str(), table["content_md5"].as_bool()), (Some("verify"), Some(true)));
        assert!(text.lines().all(|line| line.len() <= COLUMNS_MAX), "{text}");
        assert!(text.lines().filter(|line| line.len() > 90).count() >= 2, "what is long takes the room that there is: {text}");
    }

    #[test]
    fn what_is_the_matter_stands_below_what_it_is_about() {
        let text = text(&whole());
        for part in [
            "backend store at http://a:1\n  # answered\n  # PROBLEM: the bucket \"b\" does not exist\n  #   to do: make it\n",
            "checksums = \"verify\"              # CHANGE to this, from \"forward\"\n    # an upload is refused: 501 NotImplemented\n",
            "content_md5 = true                # works\n  # account of i0, i1, i2, i3, i4 and 2 more: REFUSED\n  #   the store does",
            "  #   to do: set it anew",
            "  # account of j: not refused, but it may not list buckets (AccessDenied)\n  # more accounts of identities that were not tried: 3\n  # LEFT BEHIND: the probe object k could",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn a_reason_that_several_have_is_said_once() {
        let mut report = Report::new("store", "");
        for key in ["checksums", "content_md5"] {
            report.found(key, "x", "x", Outcome::Untried, "only with a bucket");
        }
        assert_eq!(text(&report).matches("only with a bucket").count(), 1);
    }
}
