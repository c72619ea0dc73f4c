//! `batch_body` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| batchgate_fuzz::targets::batch_body::run(data));
