//! Replays what fuzzing kept, and tries what a few thousand mutations of it do: each target of `fuzz`, without libFuzzer. The seed
//! of what fails is told; `BATCHGATE_FUZZ_SEED` repeats it, `BATCHGATE_FUZZ_RUNS` tries more or fewer.

use std::fs;
use std::panic;
use std::path::{Path, PathBuf};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

#[path = "fuzz/src/targets/mod.rs"]
mod targets;

/// Mutations of one target unless told otherwise: a few seconds without optimisation.
const RUNS: u32 = 10_000;

/// Texts that mean something to a target, put in where chance alone would seldom put them.
const WORDS: &[&[u8]] = &[
    b"\r\n",
    b"\n",
    b"%2F",
    b"%25",
    b"%",
    b"..",
    b"//",
    b"*",
    b"?",
    b"bytes=",
    b"-",
    b"18446744073709551615",
    b"null",
    b"{}",
    b"[]",
    b"\\u0000",
    b"\\ud800",
    b"\"Key\":\"k\"",
    b"\"Effect\":\"Deny\"",
    b"arn:aws:s3:::",
    b"s3:*",
    b"x-amz-copy-source: b/k\n",
    b"host: b.s3.test\n",
    b"authorization: AWS4-HMAC-SHA256 Credential=AK/20231114/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=",
    b"X-Amz-Signature=",
    b"W/\"",
    b"if-none-match: *\n",
    b"\x00\x01\x02\x03",
    b"\xff",
];

#[expect(clippy::disallowed_methods, reason = "a run that failed is repeated by its seed")]
fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number, and is {text:?}")))
}

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(target);
    let paths =
        fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())).map(|entry| entry.expect("readable").path());
    let mut files: Vec<_> = paths.map(|path| (path.clone(), fs::read(&path).expect("readable"))).collect();
    files.sort();
    files
}

/// One to eight changes of an input, each of a kind that finds what the others do not.
fn mutated(random: &mut SmallRng, from: &[u8], other: &[u8]) -> Vec<u8> {
    let mut input = from.to_vec();
    for _ in 0..random.random_range(1..=8) {
        let at = random.random_range(0..=input.len());
        let end = (at + random.random_range(0..=16)).min(input.len());
        match random.random_range(0..7) {
            0 if at < input.len() => input[at] ^= 1 << random.random_range(0..8),
            1 if at < input.len() => input[at] = random.random(),
            2 => drop(input.drain(at..end)),
            3 => drop(input.splice(at..at, WORDS[random.random_range(0..WORDS.len())].iter().copied())),
            4 => drop(input.splice(at..end, WORDS[random.random_range(0..WORDS.len())].iter().copied())),
            5 => drop(input.splice(end..end, input[at..end].to_vec())),
            _ => {
                let from = random.random_range(0..=other.len());
                input.splice(at.., other[from..].iter().copied());
            }
        }
    }
    input.truncate(targets::INPUT_BYTES_MAX);
    input
}

fn hold(target: &str) {
    let run = targets::ALL.iter().find(|(name, _)| *name == target).expect("a target").1;
    let files = corpus(target);
    assert!(files.len() >= 20, "{target}: only {} inputs are kept", files.len());
    for (path, input) in &files {
        assert!(panic::catch_unwind(|| run(input)).is_ok(), "{} fails", path.display());
    }
    let seed = setting("BATCHGATE_FUZZ_SEED").unwrap_or_else(|| SmallRng::from_os_rng().random());
    let runs = setting("BATCHGATE_FUZZ_RUNS").map_or(RUNS, |runs| runs as u32);
    let mut random = SmallRng::seed_from_u64(seed);
    for _ in 0..runs {
        let pick = |random: &mut SmallRng| random.random_range(0..files.len());
        let (from, other) = (pick(&mut random), pick(&mut random));
        let input = mutated(&mut random, &files[from].1, &files[other].1);
        let held = panic::catch_unwind(|| run(&input));
        assert!(held.is_ok(), "{target} fails with BATCHGATE_FUZZ_SEED={seed} on {}", input.escape_ascii());
    }
}

#[test]
fn every_kept_input_belongs_to_a_target() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus");
    let mut folders: Vec<_> = fs::read_dir(folder).expect("it is there").map(|e| e.expect("readable").file_name()).collect();
    folders.sort();
    assert_eq!(folders, targets::ALL.iter().map(|(name, _)| *name).collect::<Vec<_>>());
}

#[test]
fn batch_bodies_hold() {
    hold("batch_body");
}

#[test]
fn heads_hold() {
    hold("head");
}

#[test]
fn multipart_answers_hold() {
    hold("multipart");
}

#[test]
fn policies_hold() {
    hold("policy");
}

#[test]
fn ranges_and_preconditions_hold() {
    hold("ranges");
}
