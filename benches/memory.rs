//! The pure parts of the hot path: scoring, keywords, tokens, the stream cutter.

use std::hint::black_box;

use chrono::{DateTime, Utc};
use colloquy::{
    ids::FactId,
    memory::{
        calibration::Calibration,
        fact::Importance,
        keywords::{FactTexts, TermStatistics, bm25_score, fact_terms, keyword_factor, search_terms},
        packing::{PackingBudget, pack_texts},
        scoring::{FactAge, RecallWeights, compare_best_first, score_fact},
        state_block::{StateRules, StreamCutter, parse_closed},
        tokens::TokenCounter,
    },
};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// The number of candidates that the four candidate sources propose together.
const CANDIDATES: u16 = 80;
const SAMPLE_FACT: &str = "플레이어는 어둠의 숲에서 고블린왕 크룩을 만나 불꽃 검을 얻었고, the player likes grapes";
const SAMPLE_QUERY: &str = "내가 좋아하는 과일이 뭐였지? And where did I find the flaming sword?";
const SAMPLE_REPLY: &str = "<smile> 포도를 좋아한다고 했지. 어둠의 숲에서 크룩을 만났을 때도 포도 이야기를 했어.\n\n```state\nlocation: 어둠의 숲\nhp_change: -15\nitems_gained: [불꽃 검]\nrelationship_changes: [{from: 아리아, to: 크룩, type: hostile, delta: -2}]\nmood: tense\n```";

fn bench_scoring(c: &mut Criterion) {
    let query = search_terms(SAMPLE_QUERY);
    let doc = fact_terms(FactTexts {
        content: SAMPLE_FACT,
        keywords: &["포도".to_owned(), "과일".to_owned(), "sword".to_owned()],
        ..FactTexts::default()
    });
    let calibration = Calibration::preset_for_model("multilingual-e5-small").unwrap_or(Calibration::IDENTITY);
    c.bench_function("score and order 80 candidates", |b| {
        b.iter(|| {
            let mut scored: Vec<(f64, DateTime<Utc>, FactId)> = (0..CANDIDATES)
                .map(|n| {
                    let cosine = 0.8 + f32::from(n) / 1_000.0;
                    let keyword = keyword_factor(bm25_score(black_box(&query), black_box(&doc)));
                    let parts = score_fact(
                        &RecallWeights::FOUR_FACTOR,
                        &calibration,
                        cosine,
                        keyword,
                        Importance::DEFAULT,
                        FactAge::Days(f64::from(n)),
                        0.002,
                    );
                    (parts.total, DateTime::UNIX_EPOCH, FactId::from_u128(u128::from(n)))
                })
                .collect();
            scored.sort_unstable_by(|a, b| compare_best_first(*a, *b));
            scored
        });
    });
    let texts = vec![SAMPLE_FACT; 20];
    let budget = PackingBudget {
        top_k: 8,
        total_tokens: 1_200,
        item_tokens: 150,
    };
    c.bench_function("pack 8 of 20 facts", |b| {
        b.iter(|| pack_texts(black_box(&texts), budget, 1, &TokenCounter::O200k));
    });
}

fn bench_keywords(c: &mut Criterion) {
    c.bench_function("query terms", |b| b.iter(|| search_terms(black_box(SAMPLE_QUERY))));
    let words = [
        "포도".to_owned(),
        "과일".to_owned(),
        "음식".to_owned(),
        "fruit".to_owned(),
    ];
    let sample = FactTexts {
        content: SAMPLE_FACT,
        keywords: &words,
        ..FactTexts::default()
    };
    c.bench_function("document terms", |b| {
        b.iter(|| fact_terms(black_box(sample)));
    });
    let (query, doc) = (search_terms(SAMPLE_QUERY), fact_terms(sample));
    let statistics = TermStatistics::count_terms(&query, [&doc]);
    c.bench_function("weigh and compare terms", |b| {
        b.iter(|| keyword_factor(bm25_score(&statistics.weigh_query(black_box(&query)), black_box(&doc))));
    });
}

fn bench_tokens(c: &mut Criterion) {
    let mut group = c.benchmark_group("tokens");
    let prompt = SAMPLE_FACT.repeat(60);
    group.throughput(Throughput::Bytes(prompt.len() as u64));
    for (name, counter) in [
        ("o200k", TokenCounter::O200k),
        ("cl100k", TokenCounter::Cl100k),
        ("estimated", TokenCounter::Estimated),
    ] {
        group.bench_function(format!("count a prompt, {name}"), |b| {
            b.iter(|| counter.count_tokens(black_box(&prompt)));
        });
        group.bench_function(format!("cut a prompt, {name}"), |b| {
            b.iter(|| counter.truncate_to(black_box(&prompt), 500).len());
        });
    }
    group.finish();
}

fn bench_stream_cutter(c: &mut Criterion) {
    let cues = ["smile".to_owned(), "sigh".to_owned()];
    let deltas: Vec<String> = SAMPLE_REPLY
        .chars()
        .collect::<Vec<_>>()
        .chunks(4)
        .map(|chunk| chunk.iter().collect())
        .collect();
    c.bench_function("cut a streamed reply", |b| {
        b.iter(|| {
            let mut cutter = StreamCutter::new(&cues);
            for delta in &deltas {
                black_box(cutter.push(delta));
            }
            cutter.finish_reply()
        });
    });
    let block = SAMPLE_REPLY.split("```state").nth(1).unwrap_or_default();
    let rules = StateRules::default();
    c.bench_function("read a state block", |b| {
        b.iter(|| parse_closed(black_box(block), "mira", &rules));
    });
}

criterion_group!(
    benches,
    bench_scoring,
    bench_keywords,
    bench_tokens,
    bench_stream_cutter
);
criterion_main!(benches);
