//! Malformed and hostile input.

use std::io::Write as _;

use flate2::{Compression, Crc, write::ZlibEncoder};
use proptest::prelude::*;

use super::*;

/// A PNG of one grey pixel, with `texts` before the end: the type of the chunk, and the chunk's data.
pub fn png(texts: &[(&[u8; 4], Vec<u8>)]) -> Vec<u8> {
    let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut chunk = |kind: &[u8], data: &[u8]| {
        let mut crc = Crc::new();
        crc.update(kind);
        crc.update(data);
        out.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
        out.extend(kind);
        out.extend(data);
        out.extend(crc.sum().to_be_bytes());
    };
    chunk(b"IHDR", &[0, 0, 0, 1, 0, 0, 0, 1, 8, 0, 0, 0, 0]);
    chunk(b"IDAT", &deflated(&[0, 0x80]));
    for (kind, data) in texts {
        chunk(*kind, data);
    }
    chunk(b"IEND", &[]);
    out
}

fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn base64(json: &[u8]) -> Vec<u8> {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    BASE64_STANDARD.encode(json).into_bytes()
}

fn text_chunk(keyword: &str, text: &[u8]) -> (&'static [u8; 4], Vec<u8>) {
    (b"tEXt", [keyword.as_bytes(), b"\0", text].concat())
}

#[test]
fn card_is_read_from_every_kind_of_text_chunk() {
    let packed = deflated(&base64(WOLF));
    let chunks: [(&[u8; 4], Vec<u8>); 4] = [
        text_chunk("chara", &base64(WOLF)),
        (b"zTXt", [b"chara\0\0", packed.as_slice()].concat()),
        (b"iTXt", [b"chara\0\0\0en\0\0", base64(WOLF).as_slice()].concat()),
        (b"iTXt", [b"Chara\0\x01\0\0\0", packed.as_slice()].concat()),
    ];
    let expected = parse_card(WOLF);
    for chunk in chunks {
        assert_eq!(parse_card(&png(&[text_chunk("Title", b"x"), chunk])), expected);
    }
    let both = [
        text_chunk("chara", &base64(WOLF)),
        text_chunk("ccv3", &base64(INNKEEPER)),
    ];
    assert_eq!(parse_card(&png(&both)).unwrap().name(), "덕배");
    assert_eq!(parse_lorebook(&png(&both)).unwrap().entry_count(), 3);
}

#[test]
fn card_written_to_a_png_is_read_from_it() {
    let picture = png(&[text_chunk("Title", b"x"), text_chunk("chara", &base64(WOLF))]);
    let card: Value = serde_json::from_slice(INNKEEPER).unwrap();
    let written = write_png_card(&picture, &card).unwrap();
    assert_eq!(parse_card(&written), parse_card(INNKEEPER));
    // Once more: the old card goes, all else stays.
    let card: Value = serde_json::from_slice(WOLF).unwrap();
    let again = write_png_card(&written, &card).unwrap();
    assert_eq!(parse_card(&again), parse_card(WOLF));
    let expected = png(&[
        text_chunk("Title", b"x"),
        text_chunk("ccv3", &base64(card.to_string().as_bytes())),
    ]);
    assert_eq!(again, expected);
    let refused = write_png_card(KEEPER, &card);
    assert!(matches!(refused, Err(CardError::DamagedPng(_))), "{refused:?}");
}

#[test]
fn damaged_png_is_refused() {
    let whole = png(&[text_chunk("chara", &base64(WOLF))]);
    for length in 0..whole.len() {
        let refused = parse_card(&whole[..length]);
        assert!(refused.is_err(), "{length}");
        if length >= 8 {
            assert!(
                matches!(refused, Err(CardError::DamagedPng(_))),
                "{length}: {refused:?}"
            );
        }
    }
    let mut flipped = whole.clone();
    let at = whole.windows(6).position(|bytes| bytes == b"chara\0").unwrap() + 10;
    flipped[at] ^= 1;
    let message = parse_card(&flipped).unwrap_err().to_string();
    assert_eq!(message, "the PNG is damaged: the checksum of the card is wrong");
    assert_eq!(parse_card(&png(&[])), Err(CardError::NoCardInPng));
    let bad = CardError::BadBase64 { chunk: "chara" };
    assert_eq!(parse_card(&png(&[text_chunk("chara", b"!not base64!")])), Err(bad));
    let no_json = parse_card(&png(&[text_chunk("chara", &base64(b"hello"))]));
    assert!(matches!(no_json, Err(CardError::NotJson(_))), "{no_json:?}");
    for broken in [
        (b"zTXt", b"chara\0\0junk".to_vec()),
        (b"zTXt", b"chara\0".to_vec()),
        (b"iTXt", b"chara\0\0\0en".to_vec()),
    ] {
        let refused = parse_card(&png(&[broken]));
        assert!(matches!(refused, Err(CardError::DamagedPng(_))), "{refused:?}");
    }
}

#[test]
fn compressed_text_does_not_grow_without_limit() {
    let bomb = deflated(&vec![b'A'; 17 * 1024 * 1024]);
    assert!(bomb.len() < 100_000);
    let refused = parse_card(&png(&[(b"zTXt", [b"chara\0\0", bomb.as_slice()].concat())]));
    assert!(matches!(refused, Err(CardError::TooLarge { .. })), "{refused:?}");
}

#[test]
fn refusals_are_clear_sentences() {
    let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
    let many: Vec<Value> = (0..20_000).map(|_| json!({"content": "x"})).collect();
    for (input, message) in [
        (
            "hello".to_owned(),
            "the file is no JSON: expected value at line 1 column 1",
        ),
        (
            String::new(),
            "the file is no JSON: EOF while parsing a value at line 1 column 0",
        ),
        (
            deep,
            "the file is no JSON: recursion limit exceeded at line 1 column 128",
        ),
        (
            "[]".to_owned(),
            "the JSON is no character card: a card has `spec` and `data`, or `name` and `description`",
        ),
        (
            json!({"spec": "chara_card_v9\u{1b}", "data": {}}).to_string(),
            "the spec `chara_card_v9` is unknown: known are `chara_card_v2`, `chara_card_v3` and `lorebook_v3`",
        ),
        (json!({"spec": 3}).to_string(), "`spec` must be text, not a number"),
        (json!({"spec": "chara_card_v2"}).to_string(), "`data` is missing"),
        (
            json!({"spec": "lorebook_v3", "data": {"entries": []}}).to_string(),
            "the file is a lorebook, not a character card",
        ),
        (
            json!({"entries": {}}).to_string(),
            "the file is a lorebook, not a character card",
        ),
        (
            json!({"spec": "chara_card_v3", "data": {"name": " \u{200b}"}}).to_string(),
            "`data.name` is missing",
        ),
        (
            json!({"name": "a", "description": ["b"]}).to_string(),
            "`description` must be text, not a list",
        ),
        (
            card_with("character_book", &json!({"entries": [{"keys": ["a", 7]}]})).to_string(),
            "`data.character_book.entries[0].keys[1]` must be text, not a number",
        ),
        (
            card_with("character_book", &json!({"entries": {"4": {"constant": "yes"}}})).to_string(),
            "`data.character_book.entries.4.constant` must be true or false, not text",
        ),
        (
            card_with("character_book", &json!({"entries": [[]]})).to_string(),
            "`data.character_book.entries[0]` must be an object, not a list",
        ),
        (
            card_with("character_book", &json!({"entries": many})).to_string(),
            "the lorebook has 20000 entries: at most 10000 are allowed",
        ),
    ] {
        let refused = parse_card(input.as_bytes()).unwrap_err().to_string();
        assert_eq!(refused, message);
    }
    for (input, message) in [
        ("{}", "the JSON is no lorebook: a lorebook has `entries`"),
        ("[]", "the JSON is no lorebook: a lorebook has `entries`"),
        (r#"{"spec":"lorebook_v3","data":{}}"#, "`data.entries` is missing"),
        (
            r#"{"entries":7}"#,
            "`entries` must be a list or an object, not a number",
        ),
        (
            r#"{"spec":"chara_card_v3","data":{"name":"a"}}"#,
            "the character card has no lorebook",
        ),
    ] {
        assert_eq!(parse_lorebook(input.as_bytes()).unwrap_err().to_string(), message);
    }
}

#[test]
fn byte_order_mark_is_no_fault() {
    let marked = [b"\xef\xbb\xbf".as_slice(), WOLF].concat();
    assert_eq!(parse_card(&marked), parse_card(WOLF));
}

#[test]
fn long_name_in_place_of_a_macro_does_not_multiply_the_text() {
    let name = "n".repeat(200);
    let text = "{{char}}".repeat(200_000);
    let expanded = texts::Speakers::new(Some(&name), Language::En).expand(&text, &mut Vec::new());
    assert!(expanded.len() < text.len() + 100_000, "{}", expanded.len());
}

#[test]
fn huge_texts_stay_within_the_limits() {
    let mut card = card_with("description", &json!("{{char}}".repeat(200_000)));
    card["data"]["name"] = json!("n".repeat(5_000));
    card["data"]["first_mes"] = json!("{{".repeat(400_000));
    card["data"]["mes_example"] = json!("@@a\n".repeat(400_000));
    card["data"]["character_book"] = json!({"entries": [{
        "name": "k".repeat(100_000),
        "keys": (0..50_000).map(|nth| format!("k{nth}")).collect::<Vec<_>>(),
        "content": "@@x\n".repeat(100_000) + "text",
        "extensions": {"group": "g".repeat(9_000), "sticky": 1e300, "cooldown": -4},
    }]});
    let card = parse_card(card.to_string().as_bytes()).unwrap();
    let (npc, report) = card.to_npc();
    assert_eq!(npc.name.len(), 200);
    assert_eq!(npc.persona.description.len(), 4_000);
    assert_eq!(npc.persona.greeting.len(), 1_000);
    assert!(npc.persona.speech_style.len() <= 1_000);
    assert_eq!(fields(&report), ["name", "description", "mes_example", "first_mes"]);
    let (entries, _) = card.lorebook().unwrap().to_entries();
    let text = &entries[0].1;
    assert_eq!((text.content.as_str(), text.sticky, text.cooldown), ("text", 8, 0));
    assert_eq!(text.find_faults(), []);
}

#[test]
fn ten_thousand_entries_of_one_name_get_unique_ids() {
    let all: Vec<Value> = (0..10_000)
        .map(|_| json!({"name": "n".repeat(90), "content": "x"}))
        .collect();
    let (entries, report) = book(&json!({"entries": all}));
    let ids: std::collections::HashSet<&LoreId> = entries.iter().map(|(id, _)| id).collect();
    assert_eq!((ids.len(), report.len()), (10_000, 0));
}

#[test]
fn report_of_a_hostile_book_is_bounded() {
    let decorators = (0..30).map(|nth| format!("@@a{nth}\n")).collect::<Vec<_>>().concat();
    let all: Vec<Value> = (0..2_000)
        .map(|_| json!({"name": "n", "content": format!("{decorators}x")}))
        .collect();
    let (entries, report) = book(&json!({"entries": all}));
    assert_eq!((entries.len(), report.len()), (2_000, 10_001));
    assert_eq!(report[10_000].reason, "30000 further parts are not listed");
}

/// JSON with the words of cards and books, so that readers go deep.
fn any_json() -> impl Strategy<Value = Value> {
    let words = [
        "spec",
        "data",
        "name",
        "description",
        "personality",
        "first_mes",
        "mes_example",
        "extensions",
        "colloquy",
        "character_book",
        "entries",
        "keys",
        "key",
        "content",
        "comment",
        "constant",
        "enabled",
        "selective",
        "sticky",
        "group",
        "secondary_keys",
        "0",
        "id",
        "when",
        "layer",
        "verbatim",
        "tell",
        "language",
        "boundaries",
    ];
    let texts = prop_oneof![
        Just("chara_card_v2".to_owned()),
        Just("lorebook_v3".to_owned()),
        Just("@@activate\n{{char}}<START>".to_owned()),
        "[@{}/a-z가-힣<>:, \\n]{0,40}",
        "\\PC{0,30}",
        any::<String>(),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        texts.prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 80, 8, move |inner| {
        let word = prop::sample::select(words.to_vec());
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((word, inner), 0..8).prop_map(|fields| {
                let fields = fields.into_iter().map(|(word, value)| (word.to_owned(), value));
                Value::Object(fields.collect())
            }),
        ]
    })
}

fn check_import(bytes: &[u8]) -> Result<(), TestCaseError> {
    let lorebook = parse_lorebook(bytes);
    if let Ok(card) = parse_card(bytes) {
        let (npc, _) = card.to_npc();
        let persona = npc.persona;
        prop_assert!((1..=200).contains(&npc.name.chars().count()));
        prop_assert!(persona.description.chars().count() <= 4_000);
        prop_assert!(persona.speech_style.chars().count() <= 1_000);
        prop_assert!(persona.greeting.chars().count() <= 1_000);
        for text in [&persona.description, &persona.speech_style, &persona.greeting] {
            prop_assert_eq!(crate::text::check_prose(text), Ok(()));
        }
    }
    if let Ok(lorebook) = lorebook {
        for (_, text) in lorebook.to_entries().0 {
            prop_assert_eq!(text.find_faults(), vec![]);
        }
    }
    Ok(())
}

#[test]
fn entry_keeps_few_of_many_keys_and_the_report_counts_the_rest() {
    let keys: Vec<String> = (0..1_000).map(|nth| format!("k{nth}")).collect();
    for keys in [
        json!(keys),
        json!(keys.join(", ")),
        json!(",".repeat(2_000) + &keys.join(",,")),
    ] {
        let entry = json!({"comment": "x", "key": keys, "keysecondary": keys, "selective": true, "content": "c"});
        let lorebook = parse_lorebook(json!({"entries": {"0": entry}}).to_string().as_bytes()).unwrap();
        let (entries, report) = lorebook.to_entries();
        let text = &entries[0].1;
        assert_eq!((text.aliases.len(), text.keywords.len()), (16, 32));
        let reasons: Vec<&str> = report.iter().map(|part| part.reason.as_str()).collect();
        assert!(
            reasons.contains(&"not taken: 936 of 1000 keys; they are after the first 64"),
            "{reasons:?}"
        );
    }
}

#[test]
fn file_of_nothing_but_commas_or_braces_takes_no_more_memory_than_a_lorebook() {
    for (key, kept) in [(",".repeat(8_000_000), 0), ("k,".repeat(4_000_000), 64)] {
        let file = json!({"entries": {"0": {"comment": "x", "key": key, "content": "c"}}});
        let lorebook = parse_lorebook(file.to_string().as_bytes()).unwrap();
        assert_eq!(lorebook.entries[0].keys.len(), kept);
        assert_eq!(lorebook.to_entries().0.len(), 1);
    }
    let braces = format!("{{\"entries\":[],\"x\":[{}0]}}", "{\"\":0},".repeat(1_000_000));
    let refused = parse_lorebook(braces.as_bytes());
    assert!(matches!(refused, Err(CardError::TooManyValues { .. })), "{refused:?}");
}

proptest! {
    #[test]
    fn arbitrary_json_never_panics(value in any_json()) {
        check_import(value.to_string().as_bytes())?;
    }

    #[test]
    fn arbitrary_fields_of_a_card_never_panic(
        texts in prop::collection::vec("[@{}/a-z가-힣<>:, \\n]{0,60}|\\PC{0,40}|[\\x00-\\x20\\x7fa가]{0,20}", 8),
        book in any_json(), own in any_json(), sticky in any::<f64>(),
    ) {
        let entry = json!({"name": texts[0], "keys": [texts[1], texts[2]], "content": texts[3], "constant": true,
            "selective": true, "secondary_keys": [texts[4]], "use_regex": texts[4].is_empty(),
            "extensions": {"colloquy": own, "group": texts[5], "sticky": sticky}});
        let mut card = json!({"spec": "chara_card_v3", "data": {"name": "n", "description": texts[6],
            "first_mes": texts[7], "mes_example": texts[3], "extensions": {"colloquy": own, "x": book},
            "character_book": {"entries": [entry, entry]}}});
        check_import(card.to_string().as_bytes())?;
        card["data"]["character_book"] = book;
        check_import(card.to_string().as_bytes())?;
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0_usize..400) {
        check_import(&bytes)?;
        let mut picture = png(&[text_chunk("chara", &base64(WOLF))]);
        let at = at % picture.len();
        for (place, byte) in picture[at..].iter_mut().zip(&bytes) {
            *place = *byte;
        }
        check_import(&picture)?;
    }
}
