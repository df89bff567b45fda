//! Runs `colloquy eval` on the set shipped with the server. The figures of the offline embedder are pinned, so that a
//! change of scoring shows its effect.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

/// The file of the pinned figures: `Recall@10`, `Hit@10` and `MRR` per ranking, and what prompts show.
const PINS: &str = "tests/data/eval/offline.json";
/// The allowed difference from a pin: less than one question of the smaller half.
const TOLERANCE: f64 = 0.005;
/// The row of the number of facts shown for a question, and the allowed difference from its pin.
const SHOWN_FACTS: (&str, f64) = ("shown.facts", 0.05);

type PinnedFigures = BTreeMap<String, Vec<f64>>;

fn eval(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_colloquy"));
    command.env_clear().current_dir(folder).arg("eval").args(arguments);
    command.output().unwrap()
}

fn report(arguments: &[&str]) -> (Value, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let output = eval(
        &[arguments, &["--json", "report.json", "--svg", "chart.svg"]].concat(),
        folder.path(),
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json = fs::read_to_string(folder.path().join("report.json")).unwrap();
    let svg = fs::read_to_string(folder.path().join("chart.svg")).unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    (serde_json::from_str(&json).unwrap(), svg, table)
}

fn figures(report: &Value) -> PinnedFigures {
    let of = |averages: &Value, names: &[&str]| -> Vec<f64> {
        let figures = names.iter().map(|name| averages[*name].as_f64().unwrap());
        figures.map(|figure| (figure * 10_000.0).round() / 10_000.0).collect()
    };
    let ranking = ["recall", "hit", "mrr"];
    let mut all = PinnedFigures::from([
        ("overall".to_owned(), of(&report["overall"], &ranking)),
        ("shown.precision".to_owned(), of(&report["shown"], &["precision"])),
        (SHOWN_FACTS.0.to_owned(), of(&report["shown"], &["facts"])),
    ]);
    for group in ["factors", "languages"] {
        for (name, averages) in report[group].as_object().unwrap() {
            all.insert(format!("{group}.{name}"), of(averages, &ranking));
        }
    }
    all
}

#[test]
fn eval_figures_of_the_shipped_set_are_pinned() {
    let (report, svg, table) = report(&["--misses", "2"]);
    assert_eq!(
        (report["facts"].as_u64(), report["questions"].as_u64()),
        (Some(248), Some(270))
    );
    assert!(
        table.contains("Recall@10") && table.contains("questions miss an answer"),
        "{table}"
    );
    assert!(svg.starts_with("<svg") && svg.contains("near_miss"));
    let measured = figures(&report);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PINS);
    if std::env::var_os("COLLOQUY_PIN_EVAL").is_some() {
        fs::write(&path, serde_json::to_string_pretty(&measured).unwrap() + "\n").unwrap();
        return;
    }
    let pinned: PinnedFigures = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let near = |(name, is): (&String, &Vec<f64>)| {
        let pin = pinned.get(name).filter(|pin| pin.len() == is.len())?;
        let (facts, tolerance) = SHOWN_FACTS;
        let tolerance = if name == facts { tolerance } else { TOLERANCE };
        is.iter()
            .zip(pin)
            .all(|(is, pin)| (is - pin).abs() <= tolerance)
            .then_some(())
    };
    let all_near = measured.len() == pinned.len() && measured.iter().all(|row| near(row).is_some());
    assert!(
        all_near,
        "the figures of the shipped set have changed (Recall@10, Hit@10, MRR; Precision@shown, facts shown).\n\
         pinned:   {pinned:?}\nmeasured: {measured:?}\n\
         If that is meant, pin it anew and say in the commit what became better and worse:\n  \
         COLLOQUY_PIN_EVAL=1 cargo test --test it eval::figures"
    );
}

#[test]
fn eval_compares_two_settings_on_the_same_questions() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let set = file(
        "set.jsonl",
        r#"
{"fact": {"id": "plums", "content": "The player likes plums.", "importance": 1, "valid_at": "2026-01-01T00:00:00Z"}}
{"fact": {"id": "cat", "content": "Mira keeps a cat.", "importance": 10, "valid_at": "2026-02-01T00:00:00Z"}}
{"question": {"id": "q", "text": "Who likes plums?", "answers": ["plums"]}}
"#,
    );
    let words = file(
        "words.toml",
        "[recall.weights]\nrelevance = 0\nkeyword = 1\nrecency = 0\nimportance = 0\n",
    );
    let age = file(
        "age.toml",
        "[recall.weights]\nrelevance = 0\nkeyword = 0\nrecency = 1\nimportance = 0\n",
    );
    let (report, svg, table) = report(&[&set, "-k", "1", "--settings", &words, "--against", &age]);
    assert_eq!(
        (
            report["overall"]["mrr"].as_f64(),
            report["against"]["overall"]["mrr"].as_f64()
        ),
        (Some(1.0), Some(0.0))
    );
    let mrr = &report["against"]["mrr"];
    assert_eq!(
        (mrr["difference"].as_f64(), mrr["better"].as_u64(), mrr["p"].as_f64()),
        (Some(1.0), Some(1), Some(1.0))
    );
    assert!(
        table.contains("words.toml") && table.contains("age.toml") && svg.contains("age.toml"),
        "{table}"
    );
}

#[test]
fn eval_names_an_invalid_set_or_setting() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("set.jsonl"),
        r#"{"question": {"id": "q", "text": "Who?", "answers": ["f"]}}"#,
    )
    .unwrap();
    fs::write(folder.path().join("odd.toml"), "[recall.weights]\nkeyword = 0.9\n").unwrap();
    for (arguments, says) in [
        (&["set.jsonl"] as &[&str], "line 1: there is no fact `f`"),
        (&["nowhere.jsonl"], "cannot read nowhere.jsonl"),
        (&["--settings", "odd.toml"], "must sum to 1"),
        (&["--against", "nowhere.toml"], "cannot read nowhere.toml"),
        (&["-k", "0"], "1..=100"),
    ] {
        let output = eval(arguments, folder.path());
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && told.contains(says),
            "{told}\nshould say: {says}"
        );
    }
}
