#![allow(clippy::unwrap_used)]

use super::*;

const FACT: &str =
    r#"{"fact": {"id": "f1", "content": "The player likes grapes.", "valid_at": "2026-03-01T00:00:00Z"}}"#;
const QUESTION: &str = r#"{"question": {"id": "q1", "text": "과일은 뭘 좋아하지?", "answers": ["f1"]}}"#;

fn set(lines: &[&str]) -> Result<EvalSet, EvalSetFaults> {
    parse_set(&lines.join("\n"))
}

fn fault(lines: &[&str]) -> String {
    set(lines).unwrap_err().to_string()
}

#[test]
fn eval_row_defaults_fill_missing_fields() {
    let set = set(&["# a set", FACT, "", QUESTION]).unwrap();
    let fact = &set.facts[0];
    let question = &set.questions[0];
    assert_eq!((fact.memory.as_str(), fact.subject.as_str()), ("npc", "player"));
    assert_eq!((fact.importance, fact.kind), (Importance::DEFAULT, FactKind::Note));
    assert_eq!((fact.language.as_str(), question.language.as_str()), ("en", "ko"));
    assert_eq!(question.answers, [[0]]);
    assert_eq!(question.asked_at, fact.valid_at + TimeDelta::days(1));
    assert_eq!(set.memory_ids().len(), 1);
}

#[test]
fn eval_answer_may_be_many_facts() {
    let same =
        r#"{"fact": {"id": "f2", "content": "Grapes are what the player likes.", "valid_at": "2026-03-01T00:00:00Z"}}"#;
    let either = r#"{"question": {"id": "q", "text": "Which fruit?", "answers": [["f1", "f2"], "f2"]}}"#;
    assert_eq!(
        set(&[FACT, same, either]).unwrap().questions[0].answers,
        [vec![0, 1], vec![1]]
    );
    let no_answers = r#"{"question": {"id": "q", "text": "Which fruit?", "answers": [[]]}}"#;
    assert!(fault(&[FACT, no_answers]).contains("line 2: `answers` names no fact"));
}

#[test]
fn eval_fact_without_a_date_is_as_old_as_the_oldest() {
    let undated = r#"{"fact": {"id": "f2", "content": "The player is tall."}}"#;
    let dated = set(&[FACT, undated, QUESTION]).unwrap();
    assert_eq!(dated.facts[1].valid_at, dated.facts[0].valid_at);
    let question = r#"{"question": {"id": "q", "text": "How tall?", "answers": ["f2"]}}"#;
    assert_eq!(set(&[undated, question]).unwrap().facts[0].valid_at, DEFAULT_START);
}

#[test]
fn eval_set_faults_are_reported_with_their_line() {
    let question = |id: &str, answers: &str, extra_fields: &str| {
        format!(r#"{{"question": {{"id": "{id}", "text": "What?", "answers": {answers}{extra_fields}}}}}"#)
    };
    for (rows, expected) in [
        (
            vec![FACT.to_owned(), FACT.to_owned()],
            "line 2: the fact `f1` is on line 1 already",
        ),
        (
            vec![FACT.to_owned(), question("q", r#"["f9"]"#, "")],
            "line 2: there is no fact `f9`",
        ),
        (
            vec![FACT.to_owned(), question("q", "[[]]", "")],
            "line 2: `answers` names no fact",
        ),
        (
            vec![FACT.to_owned(), question("q", r#"["f1", "f1"]"#, "")],
            "line 2: the fact `f1` is named twice",
        ),
        (
            vec![FACT.to_owned(), question("q", r#"["f1"]"#, r#", "memory": "anna""#)],
            "line 2: the fact `f1` is in the memory `npc`, not `anna`",
        ),
        (
            vec![
                FACT.to_owned(),
                question("q", r#"["f1"]"#, r#", "at": "2026-02-01T00:00:00Z""#),
            ],
            "line 2: the fact `f1` is not known yet",
        ),
        (
            vec![FACT.to_owned(), question("q", r#"["f1"]"#, r#", "memory": "Anna!""#)],
            "line 2: `memory`: an NPC id",
        ),
        (
            vec![FACT.to_owned(), QUESTION.to_owned(), QUESTION.to_owned()],
            "line 3: the question `q1` is on line 2",
        ),
        (
            vec![r#"{"fact": {"id": "f", "content": " "}}"#.to_owned()],
            "line 1: `content` must be 1 to 2000",
        ),
        (
            vec![r#"{"fact": {"id": "f"}}"#.to_owned()],
            "line 1: missing field `content`",
        ),
        (
            vec![r#"{"fact": {"id": "f", "content": "x", "imporance": 3}}"#.to_owned()],
            "unknown field `imporance`",
        ),
        (
            vec![r#"{"fact": {"id": "f", "content": "x", "importance": 11}}"#.to_owned()],
            "importance must be 1 to 10",
        ),
        (vec!["{}".to_owned()], "line 1: a row has either `fact` or `question`"),
        (vec!["nonsense".to_owned()], "line 1: expected"),
        (vec![FACT.to_owned()], "there are no questions"),
        (vec![QUESTION.to_owned()], "there are no facts"),
        (vec![String::new()], "there are no facts"),
    ] {
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        let message = fault(&rows);
        assert!(message.contains(expected), "{message}\nshould say: {expected}");
    }
}

#[test]
fn eval_set_too_large_is_rejected_and_only_first_faults_are_listed() {
    let long = format!(
        r#"{{"fact": {{"id": "f", "content": "{}"}}}}"#,
        "x".repeat(MAX_TEXT + 1)
    );
    assert!(fault(&[&long, QUESTION]).contains("`content` must be 1 to 2000 characters"));
    let many = vec!["nonsense"; 50];
    assert!(fault(&many).ends_with("and 30 more faults"));
    let rows: Vec<String> = (0..=MAX_ROWS)
        .map(|n| format!(r#"{{"fact": {{"id": "f{n}", "content": "x"}}}}"#))
        .collect();
    let rows = rows.join("\n");
    assert!(
        parse_set(&rows)
            .unwrap_err()
            .to_string()
            .contains("50001 facts; a set has at most 50000")
    );
}
