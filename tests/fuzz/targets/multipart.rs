//! `multipart` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| batchgate_fuzz::targets::multipart::run(data));
