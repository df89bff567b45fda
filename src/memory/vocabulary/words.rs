//! The default lists, with English and Korean words of the same meaning.

use std::sync::LazyLock;

/// One word of a list.
pub(super) struct VocabularyWord {
    pub key: &'static str,
    /// Other English words with the same meaning.
    pub english: Vec<&'static str>,
    /// Korean words or beginnings of words. A Korean prompt shows the first.
    pub korean: Vec<&'static str>,
}

impl VocabularyWord {
    /// True if `text_words` begins with a word of this entry.
    pub(super) fn is_meant_by(&self, text_words: &[&str]) -> bool {
        let Some(first) = text_words.first() else { return false };
        self.english.contains(first) || self.korean.iter().any(|word| first.starts_with(word))
    }
}

/// Reads a line per word: `key: English words | Korean words`.
fn parse_words(list: &'static str) -> Vec<VocabularyWord> {
    let parse_line = |line: &'static str| {
        let (key, words) = line.split_once(": ").expect("a key");
        let (english, korean) = words.split_once(" | ").expect("words of both languages");
        VocabularyWord {
            key,
            english: english.split(' ').collect(),
            korean: korean.split(' ').collect(),
        }
    };
    list.lines().map(parse_line).collect()
}

pub(super) static MOODS: LazyLock<Vec<VocabularyWord>> = LazyLock::new(|| {
    parse_words(
        "\
calm: peaceful serene composed relaxed neutral content quiet | 차분 평온 침착 담담 덤덤 잔잔 느긋
happy: glad joyful cheerful pleased delighted happiness joy warm | 기쁨 기쁘 기쁜 기뻐 기뻤 행복 즐거 즐겁 반가 반갑 흐뭇 흡족 좋음
amused: playful amusement teasing | 재미 유쾌 장난 즐기
excited: eager thrilled excitement enthusiastic | 들뜸 들뜬 들떠 신남 신나 신난 설렘 설레 흥분
proud: pride | 뿌듯 자랑 자부 의기양양
grateful: thankful gratitude touched | 고마움 고마 고맙 감사 감동
hopeful: hope optimistic determined | 희망 기대 결연
relieved: relief reassured | 안도 안심 홀가분
curious: intrigued interested curiosity | 궁금 호기심 흥미
surprised: shocked astonished startled surprise confused | 놀람 놀라 놀란 당황 경악 어리둥절
tense: nervous wary alert tension | 긴장 초조 조마조마
worried: anxious concerned uneasy worry troubled anxiety | 걱정 불안 근심 염려
afraid: scared fearful frightened terrified fear | 두려움 두려 두렵 무서 무섭 겁 공포
suspicious: distrustful guarded suspicion doubtful | 의심 경계 수상 미심
angry: furious mad enraged anger hostile outraged | 화남 화난 화나 화가 분노 성난 격분 노여
annoyed: irritated frustrated impatient grumpy annoyance offended displeased | 짜증 성가 귀찮 답답 언짢 불쾌
sad: unhappy sorrowful melancholy gloomy sadness grief heartbroken disappointed | 슬픔 슬프 슬픈 슬퍼 우울 서글 울적 비통 속상 실망
lonely: loneliness nostalgic longing | 외로움 외로 외롭 쓸쓸 고독 그리움 그립 그리워
tired: weary exhausted sleepy bored | 피곤 지침 지친 지쳐 피로 나른 지루 심심
ashamed: embarrassed guilty shame guilt shy | 부끄러움 부끄 창피 수치 죄책 미안 쑥스 수줍",
    )
});

pub(super) static KINDS: LazyLock<Vec<VocabularyWord>> = LazyLock::new(|| {
    parse_words(
        "\
trust: confidence faith | 신뢰 신뢰도 믿음 신용
affection: affinity friendship love liking fondness like friendly friend closeness romance | 호감 호감도 애정 사랑 우정 친밀도 친밀감 친밀 애착 우호
respect: admiration esteem | 존경 존경심 존중
fear: dread terror | 두려움 공포 공포심
debt: obligation gratitude owes | 빚 은혜 신세
loyalty: allegiance devotion | 충성 충성심 충성도 의리
rivalry: rival jealousy envy competition | 경쟁심 경쟁 질투 라이벌
hostility: hostile enmity hatred hate grudge resentment enemy anger | 적의 적대감 적대 증오 미움 원한 반감",
    )
});

pub(super) static STATUSES: LazyLock<Vec<VocabularyWord>> = LazyLock::new(|| {
    parse_words(
        "\
alive: living well healthy recovered revived resurrected | 생존 살아 건강 회복 부활
dead: died killed slain deceased perished | 사망 죽음 죽었 죽은 죽어 전사 숨졌 살해
wounded: injured hurt bleeding | 부상 다침 다쳤 다친 상처
unconscious: fainted stunned knocked | 기절 의식불명 혼절
asleep: sleeping sleeps slumbering | 잠듦 잠든 잠들 자는 수면
away: gone left absent departed | 부재 떠남 떠났 떠난 자리비움
captive: captured imprisoned arrested jailed prisoner | 포로 붙잡 감금 체포 갇힘 갇힌
hidden: hiding concealed | 은신 숨음 숨어 숨은 은둔",
    )
});
