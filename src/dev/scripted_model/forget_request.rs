//! The words that make a sentence a request to forget.

use regex::Regex;

use super::{clause_start::strip_start, lexicon::Lexicon};
use colloquy_memory::authored::Language;

regex!(
    EN_WISH,
    r"(?i)^(?:(?:can|could|would|will) you (?:please )?|i (?:want|would like|need|beg|ask) you to |you (?:can|should|may|must) )?(?:please |just )*(?:forget\b|(?:never ?mind|disregard) (?:that|what|about|everything)\b)(?P<rest>.*)$"
);
regex!(
    KO_WISH,
    r"^(?P<rest>.*?)(?:^|\s+)(?:(?:다|모두|전부|그냥|이제|이젠|제발|좀|부디|싹) )*잊어 ?(?:줘|줘요|줘라|주세요|주십시오|주게|주겠나|주겠어|주겠어요|줄래|줄래요|줄 수 있어|줄 수 있어요|주실래요|주시겠어요|버려|버려요|버리세요|버려라|버리게|버려 ?줘|버려 ?주세요|라)?$"
);

/// True if a normalised sentence is a request to forget.
pub(super) fn is_forget_command(lexicon: &Lexicon, normal: &str, vocative: &str) -> bool {
    request_remainder(lexicon, normal, vocative).is_some()
}

/// Returns the words after the request itself.
pub(super) fn request_remainder(lexicon: &Lexicon, normal: &str, vocative: &str) -> Option<String> {
    let body = strip_start(lexicon, normal, vocative);
    let wish: &Regex = match lexicon.language {
        Language::En => &EN_WISH,
        Language::Ko => &KO_WISH,
    };
    wish.captures(&body).map(|found| found["rest"].trim().to_owned())
}
