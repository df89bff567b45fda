//! `--fix`: the changes of a report, written into the settings file. Comments, order and all other keys stay.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use toml_edit::{Array, DocumentMut, Item, Table, TableLike, Value as TomlValue};

use super::report::SettingChange;
use crate::config::{Config, ConfigSources, ENV_PREFIX};

/// A settings file before and after its changes.
#[derive(Debug)]
pub(super) struct FixedFile {
    pub path: PathBuf,
    old_text: String,
    new_text: String,
    /// Changes that the file cannot make, because the environment sets the key.
    pub shadowed: Vec<SettingChange>,
}

impl FixedFile {
    /// Prepares the changes, and checks that the changed settings are valid. Writes nothing.
    ///
    /// # Errors
    /// The file cannot be read, or the changed settings are invalid.
    pub(super) fn prepare(sources: &ConfigSources, changes: &[SettingChange]) -> anyhow::Result<Self> {
        let path = sources
            .file
            .clone()
            .or_else(|| sources.optional_file.clone())
            .context("no settings file is named")?;
        let old_text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let (shadowed, own_changes): (Vec<_>, Vec<_>) =
            changes.iter().cloned().partition(|change| is_in_env(sources, change));
        let new_text =
            apply_changes(&old_text, &own_changes).with_context(|| format!("cannot change {}", path.display()))?;
        check_settings(sources, &new_text)?;
        Ok(Self {
            path,
            old_text,
            new_text,
            shadowed,
        })
    }

    pub(super) fn is_changed(&self) -> bool {
        self.old_text != self.new_text
    }

    /// Returns the removed and the added lines.
    pub(super) fn diff(&self) -> String {
        diff_lines(&self.old_text, &self.new_text)
    }

    /// Writes the file. An existing file keeps its owner and its permissions.
    pub(super) fn write(&self) -> anyhow::Result<()> {
        fs::write(&self.path, &self.new_text).with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// Returns the name of the variable of a setting.
pub(super) fn variable_of(key: &str) -> String {
    format!("{ENV_PREFIX}{}", key.replace('.', "__").to_uppercase())
}

fn is_in_env(sources: &ConfigSources, change: &SettingChange) -> bool {
    let variable = variable_of(&change.key);
    sources.env.iter().any(|(name, _)| name.eq_ignore_ascii_case(&variable))
}

/// Checks the settings with this text in place of the settings file.
fn check_settings(sources: &ConfigSources, text: &str) -> anyhow::Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let path = folder.path().join("colloquy.toml");
    fs::write(&path, text).context("cannot write a temporary file")?;
    let changed_sources = ConfigSources {
        file: Some(path),
        ..sources.clone()
    };
    match Config::load(&changed_sources) {
        Ok(_) => Ok(()),
        Err(faults) => bail!("nothing is written, because the changed settings would be invalid: {faults}"),
    }
}

/// Sets the keys in a TOML text.
fn apply_changes(text: &str, changes: &[SettingChange]) -> anyhow::Result<String> {
    // The parser's own message may quote a line with a secret.
    let mut document: DocumentMut = text
        .parse()
        .map_err(|_| anyhow::anyhow!("it is not valid TOML; `colloquy config --check` names the line"))?;
    for change in changes {
        let mut parents: Vec<&str> = change.key.split('.').collect();
        let Some(name) = parents.pop() else { continue };
        let mut table: &mut dyn TableLike = document.as_table_mut();
        for parent in parents {
            table = table
                .entry(parent)
                .or_insert_with(|| {
                    let mut new_table = Table::new();
                    // A table that has only tables gets no heading.
                    new_table.set_implicit(true);
                    Item::Table(new_table)
                })
                .as_table_like_mut()
                .with_context(|| format!("`{parent}` of {} is no table", change.key))?;
        }
        let mut new_value = toml_value(&change.value).with_context(|| format!("{} has no TOML value", change.key))?;
        if let Some(old_value) = table.get(name).and_then(Item::as_value) {
            // A comment behind the old value stays.
            *new_value.decor_mut() = old_value.decor().clone();
        }
        match table.get_mut(name) {
            Some(item) => *item = Item::Value(new_value),
            None => {
                table.insert(name, Item::Value(new_value));
            }
        }
    }
    Ok(document.to_string())
}

fn toml_value(value: &serde_json::Value) -> Option<TomlValue> {
    Some(match value {
        serde_json::Value::Bool(switch) => (*switch).into(),
        serde_json::Value::String(text) => text.as_str().into(),
        serde_json::Value::Number(number) => match number.as_i64() {
            Some(integer) => integer.into(),
            None => number.as_f64()?.into(),
        },
        serde_json::Value::Array(items) => {
            let items: Option<Array> = items.iter().map(toml_value).collect();
            TomlValue::Array(items?)
        }
        serde_json::Value::Null | serde_json::Value::Object(_) => return None,
    })
}

/// Returns the lines that differ, `-` before removed and `+` before added lines, by the longest common sequence.
fn diff_lines(old_text: &str, new_text: &str) -> String {
    let old_lines: Vec<&str> = old_text.lines().collect();
    let new_lines: Vec<&str> = new_text.lines().collect();
    // `common[i][j]`: the length of the longest common sequence of `old_lines[i..]` and `new_lines[j..]`.
    let mut common = vec![vec![0_usize; new_lines.len() + 1]; old_lines.len() + 1];
    for i in (0..old_lines.len()).rev() {
        for j in (0..new_lines.len()).rev() {
            common[i][j] = if old_lines[i] == new_lines[j] {
                common[i + 1][j + 1] + 1
            } else {
                common[i + 1][j].max(common[i][j + 1])
            };
        }
    }
    let mut i = 0;
    let mut j = 0;
    let mut lines = Vec::new();
    while i < old_lines.len() || j < new_lines.len() {
        if i < old_lines.len() && j < new_lines.len() && old_lines[i] == new_lines[j] {
            i += 1;
            j += 1;
        } else if j == new_lines.len() || (i < old_lines.len() && common[i + 1][j] >= common[i][j + 1]) {
            lines.push(format!("-{}", old_lines[i]));
            i += 1;
        } else {
            lines.push(format!("+{}", new_lines[j]));
            j += 1;
        }
    }
    lines.join("\n")
}

/// Returns the path of the settings file for messages.
pub(super) fn shown_path(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn changes() -> Vec<SettingChange> {
        vec![
            SettingChange::new("llm.supports_json_schema", false),
            SettingChange::new("llm.reasoning", "off"),
            SettingChange::new("embedder.calibration.floor", 0.5),
            SettingChange::new("llm.stop", serde_json::json!(["a", "b"])),
            SettingChange::new("turn.replies_without_block", 4),
        ]
    }

    #[test]
    fn other_keys_comments_and_order_stay() {
        let before = "# My server.\n[llm]\npreset = \"ollama\"  # local\nsupports_json_schema = true # as it was\n\n\
                      # Lines.\n[turn]\nmax_queued = 7\n";
        let after = apply_changes(before, &changes()).unwrap();
        for part in [
            "# My server.\n[llm]\npreset = \"ollama\"  # local\n",
            "supports_json_schema = false # as it was\n",
            "reasoning = \"off\"\n",
            "stop = [\"a\", \"b\"]\n",
            "# Lines.\n[turn]\nmax_queued = 7\nreplies_without_block = 4\n",
            "[embedder.calibration]\nfloor = 0.5\n",
        ] {
            assert!(after.contains(part), "{part}: {after}");
        }
        assert_eq!(apply_changes(&after, &changes()).unwrap(), after, "once is enough");
        let diff = diff_lines(before, &after);
        assert!(
            diff.contains("-supports_json_schema = true # as it was\n+supports_json_schema = false"),
            "{diff}"
        );
        assert!(!diff.contains("max_queued") && !diff.contains("preset"), "{diff}");
        assert_eq!(diff_lines("a\nb\n", "a\nb\n"), "");
    }

    #[test]
    fn dotted_and_inline_tables_are_changed_in_place() {
        let after = apply_changes(
            "llm.model = \"m\"\nturn = { max_queued = 7 }\n",
            &[
                SettingChange::new("llm.reasoning", "off"),
                SettingChange::new("turn.max_queued", 8),
            ],
        )
        .unwrap();
        let document: toml_edit::DocumentMut = after.parse().unwrap();
        assert_eq!(document["llm"]["model"].as_str(), Some("m"), "{after}");
        assert_eq!(document["llm"]["reasoning"].as_str(), Some("off"), "{after}");
        assert_eq!(document["turn"]["max_queued"].as_integer(), Some(8), "{after}");
        assert!(apply_changes("llm = 4\n", &[SettingChange::new("llm.model", "m")]).is_err());
        assert!(apply_changes("llm = [", &[]).is_err());
    }

    fn sources(folder: &Path, vars: &[(&str, &str)]) -> ConfigSources {
        ConfigSources {
            optional_file: Some(folder.join("colloquy.toml")),
            env: vars.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            ..ConfigSources::default()
        }
    }

    #[test]
    fn file_is_made_if_missing_and_the_environment_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let sources = sources(folder.path(), &[("COLLOQUY__TURN__REPLIES_WITHOUT_BLOCK", "0")]);
        let changes = [
            SettingChange::new("turn.max_queued", 8),
            SettingChange::new("turn.replies_without_block", 4),
        ];
        let fixed = FixedFile::prepare(&sources, &changes).unwrap();
        assert_eq!(fixed.shadowed, changes[1..]);
        assert_eq!(variable_of(&changes[1].key), "COLLOQUY__TURN__REPLIES_WITHOUT_BLOCK");
        assert!(fixed.is_changed() && !fixed.path.exists());
        fixed.write().unwrap();
        assert_eq!(fs::read_to_string(&fixed.path).unwrap(), "[turn]\nmax_queued = 8\n");
        assert!(!FixedFile::prepare(&sources, &changes[..1]).unwrap().is_changed());
    }

    #[test]
    fn change_that_makes_the_settings_invalid_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let changes = [SettingChange::new("turn.max_queued", 1_000_000)];
        let refused = FixedFile::prepare(&sources(folder.path(), &[]), &changes).unwrap_err();
        assert!(refused.to_string().contains("turn.max_queued"), "{refused}");
        assert!(!folder.path().join("colloquy.toml").exists());
    }
}
