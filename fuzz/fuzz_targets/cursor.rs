#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hikyaku::fuzz::run("cursor", bytes));
