//! `colloquy config`: the settings there are, and whether those given are right.

use crate::config::{Config, DEFAULTS, Sources};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only check the settings of this environment.
    #[arg(long)]
    check: bool,
}

pub(super) fn run(args: &Args, sources: &Sources) -> anyhow::Result<()> {
    if args.check {
        // The parts of a URL that only its store can judge, and what is in a file.
        crate::app::check(&Config::load(sources)?)?;
        println!("the configuration is valid");
    } else {
        super::print_text(DEFAULTS)?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_the_ledger_would_refuse_is_not_valid() {
        let check = |url: &str| {
            let sources = Sources {
                env: vec![("COLLOQUY__LEDGER__URL".to_owned(), url.to_owned())],
                ..Sources::default()
            };
            run(&Args { check: true }, &sources)
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
    fn a_vocabulary_that_is_missing_or_broken_is_named_with_its_setting() {
        let check = |path: &std::path::Path| {
            let sources = Sources {
                env: vec![("COLLOQUY__LLM__TOKENIZER_FILE".to_owned(), path.display().to_string())],
                ..Sources::default()
            };
            format!("{:#}", run(&Args { check: true }, &sources).unwrap_err())
        };
        let dir = tempfile::tempdir().unwrap();
        let broken = dir.path().join("tokenizer.json");
        std::fs::write(&broken, r#"{"version": "1.0", "model": {"type": "BPE"}}"#).unwrap();
        for (path, why) in [
            (dir.path().join("none.json"), "there is no file"),
            (dir.path().to_owned(), "there is no file"),
            (broken, "no tokenizer.json"),
        ] {
            let told = check(&path);
            for part in ["llm.tokenizer_file", &path.display().to_string(), why] {
                assert!(told.contains(part), "{part}: {told}");
            }
        }
    }
}
