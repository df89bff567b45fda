//! `colloquy config`: all settings with their defaults, and a check of the given settings.

use crate::config::{Config, ConfigSources, DEFAULTS};

#[derive(Debug, clap::Args)]
pub(super) struct ConfigArgs {
    /// Only check the settings of this environment.
    #[arg(long)]
    check: bool,
}

pub(super) fn run(args: &ConfigArgs, sources: &ConfigSources) -> anyhow::Result<()> {
    if args.check {
        // This checks also the URL of the ledger and the contents of configured files.
        crate::app::check_config(&Config::load(sources)?)?;
        println!("the configuration is valid");
    } else {
        super::process::print_text(DEFAULTS)?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn config_rejected_by_the_ledger_is_invalid() {
        let check = |url: &str| {
            let sources = ConfigSources {
                env: vec![("COLLOQUY__LEDGER__URL".to_owned(), url.to_owned())],
                ..ConfigSources::default()
            };
            run(&ConfigArgs { check: true }, &sources)
        };
        for url in [
            "postgres://u:hidden@/x y",
            "postgres://u:hidden@db/x?sslmode=perhaps",
            "sqlite://",
        ] {
            let refused = check(url).unwrap_err().to_string();
            assert!(refused.contains("ledger") || url == "sqlite://", "{refused}");
            assert!(!refused.contains("hidden"), "{refused}");
        }
        for url in ["postgres://u:hidden@db/x?sslmode=require", "sqlite://somewhere.db"] {
            check(url).unwrap();
        }
    }

    #[test]
    fn vocabulary_file_missing_or_broken_is_named_with_its_setting() {
        let check = |path: &std::path::Path| {
            let sources = ConfigSources {
                env: vec![("COLLOQUY__LLM__TOKENIZER_FILE".to_owned(), path.display().to_string())],
                ..ConfigSources::default()
            };
            format!("{:#}", run(&ConfigArgs { check: true }, &sources).unwrap_err())
        };
        let dir = tempfile::tempdir().unwrap();
        let broken = dir.path().join("tokenizer.json");
        std::fs::write(&broken, r#"{"version": "1.0", "model": {"type": "BPE"}}"#).unwrap();
        for (path, why) in [
            (dir.path().join("none.json"), "there is no file"),
            (dir.path().to_owned(), "there is no file"),
            (broken, "no tokenizer.json"),
        ] {
            let message = check(&path);
            for part in ["llm.tokenizer_file", &path.display().to_string(), why] {
                assert!(message.contains(part), "{part}: {message}");
            }
        }
    }
}
