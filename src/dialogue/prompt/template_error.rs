//! The failure of a prompt template.

/// A template that failed to render.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the prompt template {file} cannot be rendered: {message}")]
pub struct TemplateError {
    /// The file, such as `en/reply_system.j2`.
    pub file: String,
    pub message: String,
}
