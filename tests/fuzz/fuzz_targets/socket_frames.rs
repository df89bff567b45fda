#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| colloquy::http::fuzzing::socket_frames(data));
