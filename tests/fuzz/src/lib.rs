//! What is fuzzed, for libFuzzer's programs in `targets`. The same file is a part of the test `fuzz_corpus`, which needs no
//! libFuzzer.

pub mod targets;
