//! Requests to forget: "Forget that I like plums".

use super::{
    claim::{self, ClaimVoice, ParsedClaim, lower_case_words},
    clauses,
    forget_request::request_remainder,
    lexicon::{self, Lexicon},
    prompt_memory::{PromptMemory, listed_form},
};
use colloquy_memory::{authored::Language, fact::FactKind};

/// One request to forget.
#[derive(Debug)]
pub(super) struct ForgetCommand {
    topic: String,
    /// The claims of the request, if it is "forget that …".
    claims: Vec<ParsedClaim>,
    /// The informative words, in listed forms.
    terms: Vec<String>,
}

regex!(
    EN_LEAD,
    r"(?i)^[ ,:]*(?:about|regarding|that|all|anything|whatever|the fact|everything|(?:what )?i (?:just |once |ever )?(?:said|told you|mentioned))\b[ ,:]*"
);
// Another clause begins here, which is not part of the request.
regex!(
    EN_REST,
    r"(?i),? (?:but|because|and) (?:i|my|it|that|remember|instead)\b|, (?:i|my|it|that|please|remember)\b"
);
regex!(
    KO_STATED,
    r"^(?P<o>.+?)(?:다|라)(?:고 (?:말|얘기|이야기)?(?:했던|한|하던)|는|던) (?:것|거|건|걸|게|말|얘기|이야기|사실)(?:은|는|을|를|도)?$"
);
regex!(
    KO_ABOUT,
    r"^(?P<o>.+?)(?:에 ?(?:대해|대해서|관해|관해서|대한|관한))? ?(?:(?:내가|제가) )?(?:(?:말한|했던|한|얘기한|이야기한|말했던) )?(?:모든 )?(?:것|거|건|걸|말|얘기|이야기|사실)(?:은|는|을|를|도)?$"
);

impl ForgetCommand {
    fn from_remainder(lexicon: &Lexicon, rest: &str, npc: &str) -> Self {
        let (topic, stated) = match lexicon.language {
            Language::En => {
                let mut topic = rest.trim();
                if let Some(end) = EN_REST.find(topic) {
                    topic = topic[..end.start()].trim();
                }
                while let Some(lead) = EN_LEAD.find(topic).filter(|lead| lead.end() > 0) {
                    topic = &topic[lead.end()..];
                }
                (topic.to_owned(), topic.to_owned())
            }
            Language::Ko => {
                if let Some(captures) = KO_STATED.captures(rest) {
                    let stated = format!("{}다", &captures["o"]).replace("이름이 ", "이름은 ");
                    (captures["o"].to_owned(), stated)
                } else {
                    let topic = KO_ABOUT.captures(rest).map_or(rest, |captures| {
                        // The group takes part in every match.
                        captures.name("o").map_or(rest, |topic| topic.as_str())
                    });
                    (topic.trim().to_owned(), String::new())
                }
            }
        };
        let terms = lower_case_words(&topic)
            .iter()
            .map(|word| listed_form(lexicon, word))
            .filter(|word| {
                !lexicon.is_in_list("stopwords", word) && word.chars().count() > 1 || lexicon.knows_word(word)
            })
            .collect();
        Self {
            claims: claim::read_claims(&stated, ClaimVoice::Player, npc),
            topic,
            terms,
        }
    }

    /// "Forget it": the request names no subject.
    pub fn is_vague(&self) -> bool {
        self.claims.is_empty() && self.terms.is_empty()
    }

    /// True if the request concerns a health limit, which always stays.
    pub fn is_of_safety(&self) -> bool {
        self.claims.iter().any(|claim| claim.kind == FactKind::Constraint)
    }

    /// True if the request means this memory.
    pub fn means_memory(&self, memory: &PromptMemory) -> bool {
        if self.is_vague() {
            return false;
        }
        match &memory.claim {
            Some(memory_claim) if !self.claims.is_empty() => self.claims.iter().any(|claim| {
                claim.class == memory_claim.class
                    && claim.subject == memory_claim.subject
                    && claim.same_object(memory_claim)
            }),
            _ => !self.terms.is_empty() && self.terms.iter().all(|term| memory.terms.contains(term)),
        }
    }

    /// Returns the known statements that the request means, or else the request's own words.
    pub fn forget_texts(&self, memories: &[&str], npc: &str) -> Vec<String> {
        let meant_texts: Vec<String> = memories
            .iter()
            .filter(|text| self.means_memory(&PromptMemory::new(text, claim::read_record(text, npc))))
            .map(|text| (*text).to_owned())
            .collect();
        match () {
            () if self.is_vague() => Vec::new(),
            () if !meant_texts.is_empty() => meant_texts,
            () if !self.claims.is_empty() => self.claims.iter().map(|claim| claim.content.clone()).collect(),
            () => vec![self.topic.clone()],
        }
    }
}

/// Returns all requests to forget in a line.
pub(super) fn read_forget_commands(line: &str, npc: &str) -> Vec<ForgetCommand> {
    let lexicon = lexicon::lexicon_of(lexicon::language_of(line));
    clauses::strip_quotations(line)
        .split(['.', '!', '?', '？', '。', '\n', ';'])
        .filter_map(|sentence| {
            let normal = lexicon.normalise_text(sentence.trim_matches(|c: char| !c.is_alphanumeric()));
            request_remainder(lexicon, &normal, npc).map(|rest| ForgetCommand::from_remainder(lexicon, &rest, npc))
        })
        .collect()
}
