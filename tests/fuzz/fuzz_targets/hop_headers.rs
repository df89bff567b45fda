#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| colloquy_fuzzing::hop_headers(data));
