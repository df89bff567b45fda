//! The consolidation task: memories about the same person, of the same speaker and with the same verb, in one sentence.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::prompt_view::language_of_instructions;
use colloquy_memory::authored::Language;

regex!(
    MEMORY,
    r#"(?m)^(?P<number>\d+)\. <memory about="(?P<about>[^"]*)" from="(?P<from>[^"]*)" day="[^"]*">(?P<text>.*)</memory>$"#
);

/// True if the prompt asks for a consolidation.
pub(super) fn wants_consolidation(prompt: &str, schema: Option<&str>) -> bool {
    schema.map_or_else(|| prompt.contains("{\"conclusions\":"), |name| name == "consolidation")
}

/// Returns the conclusions of memories, in the format of the consolidation prompt. Sentences about one person by
/// one speaker that begin with the same three words, or in Korean end with the same word, are put side by side.
pub(super) fn consolidate(prompt: &str) -> Value {
    // Whom they are about, their speaker and their verb.
    type Topic<'p> = (&'p str, &'p str, String);
    let mut topics: BTreeMap<Topic<'_>, Vec<(u32, &str)>> = BTreeMap::new();
    for memory in MEMORY.captures_iter(prompt) {
        let part = |name| memory.name(name).map_or("", |group: regex::Match<'_>| group.as_str());
        let number = part("number").parse().unwrap_or_default();
        let text = part("text");
        let mut words: Vec<&str> = text.split_whitespace().take(3).collect();
        // In a Korean sentence the verb comes last.
        if language_of_instructions(prompt.split("\n\n").next().unwrap_or_default()) == Language::Ko {
            words = text.split_whitespace().rev().take(1).collect();
        }
        let topic = (part("about"), part("from"), words.join(" "));
        topics.entry(topic).or_default().push((number, text));
    }
    let conclusions = topics
        .into_values()
        .filter(|memories| memories.len() > 1)
        .map(|memories| {
            let (numbers, texts): (Vec<u32>, Vec<&str>) = memories.into_iter().unzip();
            let texts: Vec<&str> = texts.iter().map(|text| text.trim_end_matches('.')).collect();
            let content = format!("{}.", texts.join("; "));
            json!({ "of": numbers, "predicate": "", "object": "", "content": content, "keywords": [] })
        });
    json!({ "conclusions": conclusions.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_of_one_topic_are_put_together() {
        let prompt = "Below are older memories.\n\n\
            1. <memory about=\"player\" from=\"player\" day=\"1 May\">The player likes apples.</memory>\n\
            2. <memory about=\"player\" from=\"Mira\" day=\"1 May\">The player likes figs.</memory>\n\
            3. <memory about=\"player\" from=\"player\" day=\"2 May\">The player likes pears.</memory>\n";
        let answer = consolidate(prompt);
        assert_eq!(answer["conclusions"].as_array().map(Vec::len), Some(1), "{answer}");
        assert_eq!(answer["conclusions"][0]["of"], json!([1, 3]));
        assert_eq!(
            answer["conclusions"][0]["content"],
            "The player likes apples; The player likes pears."
        );
    }
}
