//! Fills the sentences of patterns: agreement and articles in English, particles in Korean.

use super::korean;

/// Values for the placeholders of a sentence.
pub(super) struct Slots<'a> {
    pub subject: String,
    pub plural: bool,
    pub object: &'a str,
    pub category: &'a str,
    pub other: &'a str,
    pub verb: &'a str,
    pub count: &'a str,
    pub now: bool,
}

/// Fills `{…}`: `{S}`, `{S's}`, `{O}`, `{A O}` (with an article), `{C}`,
/// `{P}`, `{V}`, `{V:s}`, and `{one|many}` by the subject's number.
pub(super) fn render_english(template: &str, slots: &Slots) -> String {
    fill_template(template, |token| match token {
        "S" => slots.subject.clone(),
        "S's" => format!("{}'s", slots.subject),
        "O" => slots.object.to_owned(),
        "A O" => with_article(slots.object),
        "C" => slots.category.to_owned(),
        "P" => slots.other.to_lowercase(),
        "V" => slots.verb.to_lowercase(),
        "V:s" if slots.plural => slots.verb.to_lowercase(),
        "V:s" => third_person(&slots.verb.to_lowercase()),
        token => {
            let (singular, plural) = token.split_once('|').unwrap_or((token, token));
            if slots.plural { plural } else { singular }.to_owned()
        }
    })
}

/// Fills `{…}`: `{S}`, `{O}`, `{C}`, `{P}`, `{V}`, `{Q}`, `{NOW}` (no longer), `{SINCE}` (by now), and `{X:은}` with
/// the fitting particle.
pub(super) fn render_korean(template: &str, slots: &Slots) -> String {
    fill_template(template, |token| {
        let (name, particle) = token.split_once(':').unwrap_or((token, ""));
        let word = match name {
            "S" => slots.subject.as_str(),
            "O" => slots.object,
            "C" => slots.category,
            "P" => slots.other,
            "V" => slots.verb,
            "NOW" => {
                return if slots.now {
                    "더 이상 ".to_owned()
                } else {
                    String::new()
                };
            }
            "SINCE" => return if slots.now { "이제 ".to_owned() } else { String::new() },
            "Q" if slots.count.is_empty() => return String::new(),
            "Q" => return format!("{} ", slots.count),
            _ => "",
        };
        if particle.is_empty() {
            word.to_owned()
        } else {
            format!("{word}{}", korean::fitting_particle(word, particle))
        }
    })
}

fn fill_template(template: &str, value: impl Fn(&str) -> String) -> String {
    let mut filled = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        filled.push_str(before);
        let (token, after) = after.split_once('}').unwrap_or((after, ""));
        filled.push_str(&value(token));
        rest = after;
    }
    filled.push_str(rest);
    filled
}

pub(super) fn capitalise(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// "like" → "likes", "study" → "studies", "teach" → "teaches".
fn third_person(verb: &str) -> String {
    if verb.ends_with('y') && !["ay", "ey", "oy", "uy"].iter().any(|end| verb.ends_with(end)) {
        format!("{}ies", &verb[..verb.len() - 1])
    } else if ["s", "x", "z", "ch", "sh", "o"].iter().any(|end| verb.ends_with(end)) {
        format!("{verb}es")
    } else {
        format!("{verb}s")
    }
}

pub(super) fn without_article(text: &str) -> &str {
    ["a ", "an ", "the "]
        .iter()
        .find_map(|article| text.strip_prefix(article))
        .unwrap_or(text)
}

pub(super) fn without_article_cased(text: &str) -> &str {
    // "the player's brother" is a name and has no article.
    if text.starts_with("the player") {
        return text;
    }
    ["a ", "an ", "the ", "A ", "An ", "The "]
        .iter()
        .find_map(|article| text.strip_prefix(article))
        .unwrap_or(text)
}

pub(super) fn with_article(text: &str) -> String {
    let bare = without_article_cased(text);
    let vowel = bare.chars().next().is_some_and(|c| "aeiouAEIOU".contains(c));
    format!("{} {bare}", if vowel { "an" } else { "a" })
}
