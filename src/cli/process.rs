//! The runtime and the output of a command.

/// Prints a long text. A reader that stops early (`| head`) is not an error.
pub(super) fn print_text(text: &str) -> std::io::Result<()> {
    use std::io::{ErrorKind, Write};
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Runs a command's future in an actix system, which serves tokio and the actors.
pub(super) fn block_on<T>(work: impl Future<Output = T>) -> T {
    actix_web::rt::System::new().block_on(work)
}
