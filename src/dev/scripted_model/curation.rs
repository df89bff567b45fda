//! The curation task: contradictions among what was said and the world's state, a note for each stretch, and an insight
//! about whom the last claim is about.

use serde_json::{Value, json};

use super::{
    claim::{self, ClaimVoice, ParsedClaim},
    judge,
    prompt_view::language_of_instructions,
    tasks::{read_stretch, shorten_text},
};
use colloquy_memory::authored::Language;

regex!(TURN, r#"(?s)<turn number="(?P<number>\d+)"[^>]*>(?P<lines>.*?)</turn>"#);
regex!(
    DEAD,
    r#"<state name="(?P<name>[^"]*)"[^>]* status="dead"(?: since="(?P<since>\d+)")?"#
);
regex!(
    OPEN_FINDING,
    r#"<finding id="(?P<id>F\d+)" kind="contradiction" decision="open">"#
);

/// The most characters of a line in a note.
const MAX_NOTED_CHARS: usize = 80;

/// Returns the findings of a stretch, a note about it, and an insight of its last claim, in the format of the curation prompt. The oldest open
/// contradiction counts as settled.
pub(super) fn curate_turns(prompt: &str) -> Value {
    let instructions = prompt.split("<world>").next().unwrap_or_default();
    let language = language_of_instructions(instructions);
    let dead: Vec<(&str, u32)> = DEAD
        .captures_iter(prompt)
        .filter_map(|captures| Some((captures.name("name")?.as_str(), parse_number(&captures, "since"))))
        .collect();
    let mut findings: Vec<Value> = settle_oldest(prompt, language).into_iter().collect();
    let mut earlier_claims: Vec<(u32, ParsedClaim)> = Vec::new();
    let mut note = None;
    for turn in TURN.captures_iter(prompt) {
        let number = parse_number(&turn, "number");
        let lines = &turn["lines"];
        for spoken_line in read_stretch(lines, "") {
            if let Some((name, _)) = dead
                .iter()
                .find(|(name, since)| *name == spoken_line.name && *since < number)
            {
                let text = match language {
                    Language::En => format!("{name} is dead, and speaks."),
                    Language::Ko => format!("{name}: 죽었는데 말한다."),
                };
                findings.push(new_finding(&[number], &text));
            }
            let (voice, about) = match spoken_line.name {
                "" => (ClaimVoice::Player, ""),
                name => (ClaimVoice::Npc, name),
            };
            for claim in claim::read_claims(spoken_line.text, voice, about) {
                let older = earlier_claims
                    .iter()
                    .find(|(_, older)| judge::is_contradiction(older, &claim));
                if let Some((older_number, older)) = older {
                    let text = describe_contradiction(&older.content, &claim.content, language);
                    findings.push(new_finding(&[*older_number, number], &text));
                }
                earlier_claims.push((number, claim));
            }
            if spoken_line.name.is_empty() && note.is_none() {
                note = Some((number, shorten_text(spoken_line.text, MAX_NOTED_CHARS)));
            }
        }
    }
    let edits: Vec<Value> = note
        .map(|(number, line)| append_note(number, &line, language))
        .into_iter()
        .collect();
    let claim = earlier_claims.last().map(|(_, claim)| claim);
    let insights: Vec<Value> = claim
        .map(|claim| json!({ "entity": claim.subject_name, "text": claim.content }))
        .into_iter()
        .collect();
    json!({ "findings": findings, "edits": edits, "insights": insights, "done": true })
}

/// Returns the decision about the oldest open contradiction.
fn settle_oldest(prompt: &str, language: Language) -> Option<Value> {
    let open = OPEN_FINDING.captures(prompt)?;
    let reason = match language {
        Language::En => "Nobody came back to it.",
        Language::Ko => "다시 이야기한 이가 없다.",
    };
    Some(json!({
        "about": &open["id"], "kind": "contradiction", "text": "", "turns": [], "decision": "fixed", "reason": reason,
    }))
}

fn describe_contradiction(older: &str, newer: &str, language: Language) -> String {
    match language {
        Language::En => format!("“{older}” and “{newer}” cannot both be true."),
        Language::Ko => format!("“{older}”와 “{newer}”는 함께 참일 수 없다."),
    }
}

fn append_note(turn: u32, line: &str, language: Language) -> Value {
    let text = match language {
        Language::En => format!("Turn {turn}: the player said “{line}”."),
        Language::Ko => format!("{turn}턴: 플레이어가 “{line}”라고 말했다."),
    };
    json!({ "edit": "append", "text": text, "by": "" })
}

fn parse_number(captures: &regex::Captures<'_>, name: &str) -> u32 {
    let number = captures.name(name).and_then(|number| number.as_str().parse().ok());
    number.unwrap_or_default()
}

fn new_finding(turns: &[u32], text: &str) -> Value {
    json!({ "about": "", "kind": "contradiction", "text": text, "turns": turns, "decision": "open", "reason": "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradictions_of_a_stretch_are_found_and_the_oldest_open_one_is_settled() {
        let prompt = r#"You keep the story consistent.
<world>Vale: A valley.</world>
<state name="Bert" at="inn" status="dead" since="3"/>
<finding id="F1" kind="contradiction" decision="fixed" decided="yes">Old.</finding>
<finding id="F2" kind="contradiction" decision="open">Open.</finding>
<turn number="3" day="2026-11-25">
<player>I like apples.</player>
<npc from="Bert">I was here.</npc>
</turn>
<turn number="4" day="2026-11-25">
<player>I don't like apples.</player>
<npc from="Bert">Good evening.</npc>
</turn>"#;
        let answer = curate_turns(prompt);
        let findings = answer["findings"].as_array().cloned().unwrap_or_default();
        assert_eq!(findings.len(), 3, "{answer}");
        assert_eq!(
            (&findings[0]["about"], &findings[0]["decision"]),
            (&json!("F2"), &json!("fixed"))
        );
        assert_eq!(findings[1]["turns"], json!([3, 4]), "{answer}");
        assert_eq!(findings[2]["text"], "Bert is dead, and speaks.");
        assert_eq!(answer["edits"][0]["text"], "Turn 3: the player said “I like apples.”.");
        let insights = json!([{ "entity": "player", "text": "The player does not like apples." }]);
        assert_eq!(answer["insights"], insights);
    }
}
