//! The lenient notation of a state block: `key: value` lines, inline lists and maps, block lists, or one JSON object.
//! Models mix the forms. Unreadable parts are left out, never guessed.

/// Deepest parsed nesting; deeper values are read as text.
const MAX_DEPTH: usize = 4;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum BlockValue {
    Text(String),
    List(Vec<BlockValue>),
    Map(Vec<(String, BlockValue)>),
}

/// The top-level entries of a block, in order; empty if the block is unreadable.
pub(super) fn parse_entries(block: &str) -> Vec<(String, BlockValue)> {
    let block = block.trim();
    if block.starts_with('{') {
        return match FlowParser::new(block).parse_value(0) {
            BlockValue::Map(entries) => entries,
            BlockValue::Text(_) | BlockValue::List(_) => Vec::new(),
        };
    }
    parse_lines(block)
}

fn parse_lines(block: &str) -> Vec<(String, BlockValue)> {
    let lines: Vec<&str> = block.lines().filter(|line| !is_noise(line)).collect();
    let mut entries = Vec::new();
    let mut index = 0;
    while index < lines.len() {
        let line = lines[index];
        index += 1;
        let Some((key, rest)) = split_key(line.trim_start().trim_start_matches("- ")) else {
            continue;
        };
        let rest = rest.trim();
        // A value may continue on the next lines: an unclosed bracket, or an indented or dashed list.
        let mut value_lines: Vec<&str> = Vec::new();
        if rest.is_empty() {
            while index < lines.len() && (is_dashed(lines[index]) || indent_width(lines[index]) > indent_width(line)) {
                value_lines.push(lines[index]);
                index += 1;
            }
            entries.push((key, parse_block_value(&value_lines)));
        } else if rest.starts_with(['[', '{']) {
            let mut text = rest.to_owned();
            while has_open_brackets(&text) && index < lines.len() && !begins_top_key(lines[index]) {
                text.push('\n');
                text.push_str(lines[index]);
                index += 1;
            }
            entries.push((key, FlowParser::new(&text).parse_value(0)));
        } else {
            entries.push((key, parse_scalar(rest)));
        }
    }
    entries
}

/// Items of a block list, or the entries of an indented map.
fn parse_block_value(lines: &[&str]) -> BlockValue {
    if lines.is_empty() {
        return BlockValue::Text(String::new());
    }
    if !lines.iter().any(|line| is_dashed(line)) {
        let entries: Vec<_> = lines
            .iter()
            .filter_map(|line| split_key(line))
            .map(|(k, v)| (k, parse_inline(v.trim())))
            .collect();
        return if entries.is_empty() {
            parse_scalar(&lines.join(" "))
        } else {
            BlockValue::Map(entries)
        };
    }
    let mut items: Vec<BlockValue> = Vec::new();
    for line in lines {
        let line = line.trim();
        let (item, is_new) = match line.strip_prefix(['-', '*', '•']) {
            Some(rest) => (rest.trim(), true),
            None => (line, false),
        };
        let entry = (!item.starts_with(['[', '{', '"', '\'']))
            .then(|| split_key(item))
            .flatten();
        match (entry, is_new, items.last_mut()) {
            // `- from: a` begins a map, and `  to: b` continues the map.
            (Some((key, value)), false, Some(BlockValue::Map(map))) => map.push((key, parse_inline(value.trim()))),
            (Some((key, value)), true, _) => items.push(BlockValue::Map(vec![(key, parse_inline(value.trim()))])),
            (_, true, _) if !item.is_empty() => items.push(parse_inline(item)),
            (_, false, Some(BlockValue::Text(text))) => {
                text.push(' ');
                text.push_str(item);
            }
            _ => {}
        }
    }
    BlockValue::List(items)
}

fn parse_inline(text: &str) -> BlockValue {
    if text.starts_with(['[', '{']) {
        FlowParser::new(text).parse_value(0)
    } else {
        parse_scalar(text)
    }
}

/// A plain or quoted scalar, without a trailing comment or comma.
fn parse_scalar(text: &str) -> BlockValue {
    let text = text
        .split_once(" #")
        .map_or(text, |(value, _)| value)
        .trim()
        .trim_end_matches(',')
        .trim_end();
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return BlockValue::Text(inner.to_owned());
        }
    }
    BlockValue::Text(text.to_owned())
}

fn is_noise(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#') || line == "---" || line == "..."
}

fn is_dashed(line: &str) -> bool {
    let line = line.trim_start();
    line == "-" || line.starts_with("- ") || line.starts_with("* ") || line.starts_with("• ")
}

fn indent_width(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Splits `key: value`. Some models write `=` or a full-width colon.
fn split_key(line: &str) -> Option<(String, &str)> {
    let index = line.find([':', '：', '='])?;
    let width = line[index..].chars().next().map_or(1, char::len_utf8);
    let key = tidy_key(&line[..index]);
    let plausible = !key.is_empty() && key.chars().count() <= 40 && key.split('_').count() <= 4;
    plausible.then(|| (key, &line[index + width..]))
}

/// True if a line begins a new top-level key, for values whose bracket is never closed.
fn begins_top_key(line: &str) -> bool {
    indent_width(line) == 0 && !line.starts_with(['[', '{', ']', '}', '"', '-']) && split_key(line).is_some()
}

/// A key in lower case, with blanks and dashes as `_`, without quotes and emphasis.
fn tidy_key(key: &str) -> String {
    key.trim()
        .trim_matches(['"', '\'', '*', '`', '-', ' '])
        .to_lowercase()
        .replace([' ', '-'], "_")
}

fn has_open_brackets(text: &str) -> bool {
    let mut depth = 0_i32;
    let mut quote = None;
    for c in text.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '"') => quote = Some('"'),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth -= 1,
            _ => {}
        }
    }
    depth > 0
}

/// Reads `[…]` and `{…}` with quoted or bare scalars. Missing ends and stray commas are forgiven.
struct FlowParser<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
}

impl<'a> FlowParser<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            rest: text.chars().peekable(),
        }
    }

    fn parse_value(&mut self, depth: usize) -> BlockValue {
        self.skip_blanks();
        match self.rest.peek() {
            Some('[') if depth < MAX_DEPTH => {
                self.rest.next();
                let mut items = Vec::new();
                while self.next_item(']') {
                    items.push(self.parse_value(depth + 1));
                }
                BlockValue::List(items)
            }
            Some('{') if depth < MAX_DEPTH => {
                self.rest.next();
                let mut entries = Vec::new();
                while self.next_item('}') {
                    let key = self.read_scalar(true);
                    self.skip_blanks();
                    if self.rest.next_if(|c| matches!(c, ':' | '：' | '=')).is_some() {
                        entries.push((tidy_key(&key), self.parse_value(depth + 1)));
                    }
                }
                BlockValue::Map(entries)
            }
            _ => BlockValue::Text(self.read_scalar(false)),
        }
    }

    /// Moves to the next item of a list or map; `false` at the end of the list, map or text.
    fn next_item(&mut self, end: char) -> bool {
        loop {
            self.skip_blanks();
            match self.rest.peek() {
                None => return false,
                Some(&c) if c == end => {
                    self.rest.next();
                    return false;
                }
                // Stray ends of the other kind are skipped. Otherwise the loop would never pass them.
                Some(',' | '，' | ';' | ']' | '}') => {
                    self.rest.next();
                }
                Some(_) => return true,
            }
        }
    }

    fn read_scalar(&mut self, is_key: bool) -> String {
        self.skip_blanks();
        let mut text = String::new();
        if let Some(quote) = self.rest.next_if(|c| matches!(c, '"' | '\'')) {
            while let Some(c) = self.rest.next() {
                match c {
                    '\\' => text.push(self.read_escape()),
                    c if c == quote => return text,
                    c => text.push(c),
                }
            }
            return text;
        }
        let ends = |c: char| match c {
            ',' | '，' | ']' | '}' | '\n' => true,
            ':' | '：' | '=' => is_key,
            _ => false,
        };
        while let Some(c) = self.rest.next_if(|&c| !ends(c)) {
            text.push(c);
        }
        text.trim().to_owned()
    }

    fn read_escape(&mut self) -> char {
        match self.rest.next() {
            Some('n') => '\n',
            Some('t') => '\t',
            Some('u') => {
                let digits: String = std::iter::from_fn(|| self.rest.next_if(char::is_ascii_hexdigit))
                    .take(4)
                    .collect();
                u32::from_str_radix(&digits, 16)
                    .ok()
                    .and_then(char::from_u32)
                    .unwrap_or('\u{fffd}')
            }
            Some(c) => c,
            None => '\\',
        }
    }

    fn skip_blanks(&mut self) {
        while self.rest.next_if(|c| c.is_whitespace()).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> BlockValue {
        BlockValue::Text(value.to_owned())
    }
    fn list(values: &[&str]) -> BlockValue {
        BlockValue::List(values.iter().map(|value| text(value)).collect())
    }

    #[test]
    fn flow_lines_lists_and_maps_are_parsed() {
        let block = "Location: 어둠의 숲  # here\nhp-change: -15\nitems_gained: [불꽃 검, \"rope, long\"]\n\
                     npc_met:\n  - 크룩\n  - 미라\nrelationship_changes: [{from: 아리아, to: 크룩, type: hostile, delta: -2}]\n";
        let found = parse_entries(block);
        assert_eq!(found[0], ("location".to_owned(), text("어둠의 숲")));
        assert_eq!(found[1], ("hp_change".to_owned(), text("-15")));
        assert_eq!(found[2].1, list(&["불꽃 검", "rope, long"]));
        assert_eq!(found[3].1, list(&["크룩", "미라"]));
        let BlockValue::List(changes) = &found[4].1 else {
            panic!("{found:?}")
        };
        let BlockValue::Map(change) = &changes[0] else {
            panic!("{found:?}")
        };
        assert_eq!(change[2], ("type".to_owned(), text("hostile")));
    }

    #[test]
    fn block_lists_of_maps_are_parsed() {
        let found =
            parse_entries("relationship_changes:\n- from: a\n  to: b\n  delta: 3\n- from: c\n  to: d\nmood: calm");
        let BlockValue::List(changes) = &found[0].1 else {
            panic!("{found:?}")
        };
        assert_eq!(changes.len(), 2);
        assert_eq!(
            changes[0],
            BlockValue::Map(vec![
                ("from".to_owned(), text("a")),
                ("to".to_owned(), text("b")),
                ("delta".to_owned(), text("3")),
            ])
        );
        assert_eq!(found[1], ("mood".to_owned(), text("calm")));
    }

    #[test]
    fn json_and_near_json_are_parsed() {
        for block in [
            r#"{"mood": "calm", "items_gained": ["rope", "torch"]}"#,
            "{mood: calm, items_gained: [rope, torch],}",
            "{'mood': 'calm',\n 'items_gained': ['rope', 'torch'",
        ] {
            let found = parse_entries(block);
            assert_eq!(
                found,
                [
                    ("mood".to_owned(), text("calm")),
                    ("items_gained".to_owned(), list(&["rope", "torch"]))
                ],
                "{block}"
            );
        }
        assert_eq!(parse_entries(r#"{"mood": "\uac00\n\"x\""}"#)[0].1, text("가\n\"x\""));
    }

    #[test]
    fn unclosed_list_does_not_swallow_the_next_key() {
        let found = parse_entries("items_gained: [rope, torch\nmood: calm");
        assert_eq!(found[0].1, list(&["rope", "torch"]));
        assert_eq!(found[1], ("mood".to_owned(), text("calm")));
    }

    #[test]
    fn flow_text_without_entries_yields_none() {
        for block in ["", "   \n", "hello there", "[1, 2]", "# only a comment", "----"] {
            assert_eq!(parse_entries(block), [], "{block:?}");
        }
    }

    #[test]
    fn flow_parser_terminates_on_any_bytes_and_depth() {
        use proptest::prelude::*;
        proptest!(|(block in "[\\[\\]{}:,\"'a\\- \n\\\\]{0,400}")| { let _ = parse_entries(&block); });
        let _ = parse_entries(&format!("a: {}", "[".repeat(8_000)));
        let _ = parse_entries(&"{a:".repeat(2_000));
    }
}
