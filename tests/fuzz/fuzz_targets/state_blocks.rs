#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| colloquy::http::fuzzing::state_blocks(data));
