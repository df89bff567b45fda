//! What was recorded of a story: the answers of a capable model (`answers.toml`) and the vectors of an embedder
//! (`vectors.txt`). A request is found by its hash. So a prompt that has changed finds no answer: its old answer is stale.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// One answer of the model.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedAnswer {
    /// The hash of the request ([`hash_texts`]).
    pub request: String,
    pub task: String,
    /// The label of the step in which the request came.
    pub step: String,
    pub text: String,
}

#[derive(Default, Serialize, Deserialize)]
struct AnswersFile {
    #[serde(default)]
    answers: Vec<RecordedAnswer>,
}

/// The recorded files of one story.
pub struct Cassette {
    folder: PathBuf,
    pub answers: Vec<RecordedAnswer>,
    vectors: HashMap<String, Vec<i8>>,
}

/// Returns the first 16 hexadecimal digits of the SHA-256 of the texts, each with its length.
pub fn hash_texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hasher = Sha256::new();
    for text in texts {
        hasher.update(text.len().to_le_bytes());
        hasher.update(text.as_bytes());
    }
    hasher.finalize().iter().take(8).fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

impl Cassette {
    /// Reads the files of a story. Files that do not exist yet count as empty.
    pub fn read(folder: &Path) -> Self {
        let answers = fs::read_to_string(folder.join("answers.toml")).unwrap_or_default();
        let answers: AnswersFile = toml::from_str(&answers).unwrap_or_else(|fault| panic!("answers.toml: {fault}"));
        let vectors = fs::read_to_string(folder.join("vectors.txt")).unwrap_or_default();
        let vectors = vectors.lines().map(|line| {
            let (hash, bytes) = line.split_once(' ').expect("a hash and a vector");
            let bytes = BASE64_STANDARD.decode(bytes).expect("a vector in base64");
            (hash.to_owned(), bytes.into_iter().map(u8::cast_signed).collect())
        });
        Self {
            folder: folder.to_owned(),
            answers: answers.answers,
            vectors: vectors.collect(),
        }
    }

    pub fn vector(&self, hash: &str) -> Option<&Vec<i8>> {
        self.vectors.get(hash)
    }

    /// Keeps a vector of the embedder in steps of a 127th of its largest component.
    pub fn record_vector(&mut self, hash: String, vector: &[f32]) {
        let largest = vector
            .iter()
            .fold(f32::MIN_POSITIVE, |largest, value| largest.max(value.abs()));
        #[expect(clippy::cast_possible_truncation, reason = "the values are within ±127")]
        let steps = vector
            .iter()
            .map(|value| (value / largest * 127.0).round() as i8)
            .collect();
        self.vectors.insert(hash, steps);
    }

    /// The hashes of all recorded vectors.
    pub fn hashes(&self) -> impl Iterator<Item = &String> {
        self.vectors.keys()
    }

    /// Writes the answers, and the vectors of the hashes.
    pub fn write<'a>(&self, answers: Vec<RecordedAnswer>, hashes: impl IntoIterator<Item = &'a String>) {
        let file = AnswersFile { answers };
        let text = toml::to_string_pretty(&file).expect("answers are texts");
        fs::write(self.folder.join("answers.toml"), text).expect("the folder of the story can be written");
        let lines: BTreeMap<&String, String> = hashes
            .into_iter()
            .filter_map(|hash| {
                let bytes: Vec<u8> = self.vectors.get(hash)?.iter().copied().map(i8::cast_unsigned).collect();
                let line = format!("{hash} {}\n", BASE64_STANDARD.encode(bytes));
                Some((hash, line))
            })
            .collect();
        let text: String = lines.into_values().collect();
        fs::write(self.folder.join("vectors.txt"), text).expect("the folder of the story can be written");
    }
}
