//! The default lists, with English and Korean words of the same meaning.

/// One word of a list.
pub(super) struct VocabularyWord {
    pub key: &'static str,
    /// Other English words with the same meaning.
    pub english: &'static [&'static str],
    /// Korean words or beginnings of words. A Korean prompt shows the first.
    pub korean: &'static [&'static str],
}

impl VocabularyWord {
    /// True if `said` begins with a word of this entry.
    pub(super) fn is_meant_by(&self, said: &[&str]) -> bool {
        let Some(first) = said.first() else { return false };
        self.english.contains(first) || self.korean.iter().any(|word| first.starts_with(word))
    }
}

const fn new_word(
    key: &'static str,
    english: &'static [&'static str],
    korean: &'static [&'static str],
) -> VocabularyWord {
    VocabularyWord { key, english, korean }
}

pub(super) const MOODS: &[VocabularyWord] = &[
    new_word(
        "calm",
        &[
            "peaceful", "serene", "composed", "relaxed", "neutral", "content", "quiet",
        ],
        &["차분", "평온", "침착", "담담", "덤덤", "잔잔", "느긋"],
    ),
    new_word(
        "happy",
        &[
            "glad",
            "joyful",
            "cheerful",
            "pleased",
            "delighted",
            "happiness",
            "joy",
            "warm",
        ],
        &[
            "기쁨", "기쁘", "기쁜", "기뻐", "기뻤", "행복", "즐거", "즐겁", "반가", "반갑", "흐뭇", "흡족", "좋음",
        ],
    ),
    new_word(
        "amused",
        &["playful", "amusement", "teasing"],
        &["재미", "유쾌", "장난", "즐기"],
    ),
    new_word(
        "excited",
        &["eager", "thrilled", "excitement", "enthusiastic"],
        &["들뜸", "들뜬", "들떠", "신남", "신나", "신난", "설렘", "설레", "흥분"],
    ),
    new_word("proud", &["pride"], &["뿌듯", "자랑", "자부", "의기양양"]),
    new_word(
        "grateful",
        &["thankful", "gratitude", "touched"],
        &["고마움", "고마", "고맙", "감사", "감동"],
    ),
    new_word(
        "hopeful",
        &["hope", "optimistic", "determined"],
        &["희망", "기대", "결연"],
    ),
    new_word("relieved", &["relief", "reassured"], &["안도", "안심", "홀가분"]),
    new_word(
        "curious",
        &["intrigued", "interested", "curiosity"],
        &["궁금", "호기심", "흥미"],
    ),
    new_word(
        "surprised",
        &["shocked", "astonished", "startled", "surprise", "confused"],
        &["놀람", "놀라", "놀란", "당황", "경악", "어리둥절"],
    ),
    new_word(
        "tense",
        &["nervous", "wary", "alert", "tension"],
        &["긴장", "초조", "조마조마"],
    ),
    new_word(
        "worried",
        &["anxious", "concerned", "uneasy", "worry", "troubled", "anxiety"],
        &["걱정", "불안", "근심", "염려"],
    ),
    new_word(
        "afraid",
        &["scared", "fearful", "frightened", "terrified", "fear"],
        &["두려움", "두려", "두렵", "무서", "무섭", "겁", "공포"],
    ),
    new_word(
        "suspicious",
        &["distrustful", "guarded", "suspicion", "doubtful"],
        &["의심", "경계", "수상", "미심"],
    ),
    new_word(
        "angry",
        &["furious", "mad", "enraged", "anger", "hostile", "outraged"],
        &["화남", "화난", "화나", "화가", "분노", "성난", "격분", "노여"],
    ),
    new_word(
        "annoyed",
        &[
            "irritated",
            "frustrated",
            "impatient",
            "grumpy",
            "annoyance",
            "offended",
            "displeased",
        ],
        &["짜증", "성가", "귀찮", "답답", "언짢", "불쾌"],
    ),
    new_word(
        "sad",
        &[
            "unhappy",
            "sorrowful",
            "melancholy",
            "gloomy",
            "sadness",
            "grief",
            "heartbroken",
            "disappointed",
        ],
        &[
            "슬픔", "슬프", "슬픈", "슬퍼", "우울", "서글", "울적", "비통", "속상", "실망",
        ],
    ),
    new_word(
        "lonely",
        &["loneliness", "nostalgic", "longing"],
        &["외로움", "외로", "외롭", "쓸쓸", "고독", "그리움", "그립", "그리워"],
    ),
    new_word(
        "tired",
        &["weary", "exhausted", "sleepy", "bored"],
        &["피곤", "지침", "지친", "지쳐", "피로", "나른", "지루", "심심"],
    ),
    new_word(
        "ashamed",
        &["embarrassed", "guilty", "shame", "guilt", "shy"],
        &["부끄러움", "부끄", "창피", "수치", "죄책", "미안", "쑥스", "수줍"],
    ),
];

pub(super) const KINDS: &[VocabularyWord] = &[
    new_word("trust", &["confidence", "faith"], &["신뢰", "신뢰도", "믿음", "신용"]),
    new_word(
        "affection",
        &[
            "affinity",
            "friendship",
            "love",
            "liking",
            "fondness",
            "like",
            "friendly",
            "friend",
            "closeness",
            "romance",
        ],
        &[
            "호감",
            "호감도",
            "애정",
            "사랑",
            "우정",
            "친밀도",
            "친밀감",
            "친밀",
            "애착",
            "우호",
        ],
    ),
    new_word("respect", &["admiration", "esteem"], &["존경", "존경심", "존중"]),
    new_word("fear", &["dread", "terror"], &["두려움", "공포", "공포심"]),
    new_word("debt", &["obligation", "gratitude", "owes"], &["빚", "은혜", "신세"]),
    new_word(
        "loyalty",
        &["allegiance", "devotion"],
        &["충성", "충성심", "충성도", "의리"],
    ),
    new_word(
        "rivalry",
        &["rival", "jealousy", "envy", "competition"],
        &["경쟁심", "경쟁", "질투", "라이벌"],
    ),
    new_word(
        "hostility",
        &[
            "hostile",
            "enmity",
            "hatred",
            "hate",
            "grudge",
            "resentment",
            "enemy",
            "anger",
        ],
        &["적의", "적대감", "적대", "증오", "미움", "원한", "반감"],
    ),
];
