//! `colloquy openapi`: the published API documents, without a running server.

use colloquy_http::docs;

#[derive(Debug, clap::Args)]
pub(super) struct OpenapiArgs {
    /// Print the socket's AsyncAPI document instead.
    #[arg(long)]
    socket: bool,
}

pub(super) fn run(args: &OpenapiArgs) -> anyhow::Result<()> {
    let document = if args.socket {
        docs::asyncapi_document()
    } else {
        docs::openapi_document()
    };
    super::process::print_text(&format!("{}\n", serde_json::to_string_pretty(&document)?))?;
    Ok(())
}
