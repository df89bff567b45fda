//! Decorators: lines `@@name value` at the start of an entry's content. A line `@@@name` counts if the decorator before
//! it has no meaning here.

/// Most decorators without a meaning that are reported for one entry.
const MAX_DROPPED: usize = 20;

/// The decorators that have a meaning here, and the content after them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Decorated<'a> {
    pub content: &'a str,
    /// `@@activate`: in every prompt.
    pub is_always: bool,
    /// `@@dont_activate` without `@@activate`.
    pub is_never: bool,
    /// `@@keep_activate_after_match`.
    pub is_kept: bool,
    /// Names of the other decorators, each once.
    pub dropped: Vec<&'a str>,
}

/// Decorators that say where an entry stands in a prompt, or how much text is searched. They are reported once for a
/// book.
pub fn is_placement(name: &str) -> bool {
    matches!(
        name,
        "depth"
            | "instruct_depth"
            | "reverse_depth"
            | "reverse_instruct_depth"
            | "role"
            | "position"
            | "scan_depth"
            | "instruct_scan_depth"
            | "ignore_on_max_context"
            | "disable_ui_prompt"
    )
}

/// Splits the decorators from the content.
pub fn read_decorators(content: &str) -> Decorated<'_> {
    let mut decorated = Decorated::default();
    let mut rest = content;
    let mut was_taken = false;
    while !rest.is_empty() {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        let line = line.trim();
        if !line.is_empty() {
            let Some((name, is_fallback)) = decorator_name(line) else {
                break;
            };
            if !(is_fallback && was_taken) {
                was_taken = decorated.take(name);
            }
        }
        rest = after;
    }
    decorated.is_never &= !decorated.is_always;
    decorated.content = rest;
    decorated
}

impl<'a> Decorated<'a> {
    /// False if the decorator has no meaning here.
    fn take(&mut self, name: &'a str) -> bool {
        match name {
            "activate" => self.is_always = true,
            "dont_activate" => self.is_never = true,
            "keep_activate_after_match" => self.is_kept = true,
            _ => {
                if self.dropped.len() < MAX_DROPPED && !self.dropped.contains(&name) {
                    self.dropped.push(name);
                }
                return false;
            }
        }
        true
    }
}

fn decorator_name(line: &str) -> Option<(&str, bool)> {
    let rest = line.strip_prefix("@@")?;
    let (rest, is_fallback) = rest.strip_prefix('@').map_or((rest, false), |rest| (rest, true));
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let name = end.map_or(rest, |end| &rest[..end]);
    // A value may follow after a space or a colon. Other lines are text.
    let is_name =
        (1..=64).contains(&name.len()) && rest[name.len()..].chars().next().is_none_or(|c| c == ' ' || c == ':');
    is_name.then_some((name, is_fallback))
}
