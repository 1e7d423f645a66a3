#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hikyaku_core::fuzz::run("envelope", bytes));
