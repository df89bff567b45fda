#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| colloquy_fuzzing::query_strings(data));
