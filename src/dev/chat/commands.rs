//! The commands of the terminal client.

pub(super) const HELP: &str = "\
/watch NPC NPC [about TOPIC]  lets NPCs talk with each other; what you type cuts in, an empty line leaves
/leave                        goes back to your first session
/again                        takes back the last reply and asks for another
/rewind N                     takes back everything after turn N; 0 takes everything back
/save [NAME]                  saves the whole world as it is now
/load [NAME]                  takes the whole world back, or forward, to a save; without NAME, to the newest
/facts [WORDS]                what the NPCs remember, or find for WORDS
/trace                        why the last reply was what it was
/help                         lists the commands
/quit                         ends the chat; the NPCs remember
Ctrl-C                        cuts the running reply, or leaves a conversation of NPCs; otherwise ends the chat";

/// A line of input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command {
    Say(String),
    Watch(Watch),
    Again,
    Rewind(u32),
    Save(Option<String>),
    Load(Option<String>),
    Facts(String),
    Trace,
    Help,
    Leave,
    Quit,
    /// An empty line.
    Nothing,
    /// The explanation of a line that is none of these.
    Unclear(String),
}

/// The conversation of NPCs to watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Watch {
    New {
        npcs: Vec<String>,
        topic: Option<String>,
    },
    /// One that already exists, by its id.
    Existing(String),
}

impl Command {
    /// Reads a line.
    pub(super) fn parse(line: &str) -> Self {
        let line = line.trim();
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        let name = || (!rest.is_empty()).then(|| rest.to_owned());
        match word {
            "" => Self::Nothing,
            "/leave" => Self::Leave,
            "/watch" => parse_watch(rest),
            "/again" => Self::Again,
            "/rewind" => rest.parse().map_or_else(
                |_| Self::Unclear("/rewind needs the number of the turn that is to be the last: /rewind 2".into()),
                Self::Rewind,
            ),
            "/save" => Self::Save(name()),
            "/load" => Self::Load(name()),
            "/facts" => Self::Facts(rest.to_owned()),
            "/trace" => Self::Trace,
            "/help" => Self::Help,
            "/quit" | "/exit" => Self::Quit,
            _ if word.starts_with('/') => Self::Unclear(format!("there is no command {word}; /help lists them")),
            _ => Self::Say(line.to_owned()),
        }
    }
}

fn parse_watch(rest: &str) -> Command {
    let mut words = rest.split_whitespace();
    let npcs: Vec<String> = words
        .by_ref()
        .take_while(|word| *word != "about")
        .map(str::to_owned)
        .collect();
    let topic: Vec<&str> = words.collect();
    match &npcs[..] {
        [id] if id.starts_with("con_") => Command::Watch(Watch::Existing(id.clone())),
        [_, _, ..] => Command::Watch(Watch::New {
            npcs,
            topic: (!topic.is_empty()).then(|| topic.join(" ")),
        }),
        _ => Command::Unclear("/watch needs at least two NPCs: /watch mira tom about the silver key".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chat_commands_are_read_with_their_arguments() {
        let watch = |npcs: &[&str], topic: Option<&str>| {
            Command::Watch(Watch::New {
                npcs: npcs.iter().map(|&npc| npc.to_owned()).collect(),
                topic: topic.map(str::to_owned),
            })
        };
        let cases = [
            ("  I like figs. ", Command::Say("I like figs.".into())),
            (" ", Command::Nothing),
            ("/leave", Command::Leave),
            ("/rewind 2", Command::Rewind(2)),
            ("/save", Command::Save(None)),
            ("/save before the figs", Command::Save(Some("before the figs".into()))),
            ("/facts  fruit", Command::Facts("fruit".into())),
            ("/watch mira tom", watch(&["mira", "tom"], None)),
            ("/watch mira tom about", watch(&["mira", "tom"], None)),
            (
                "/watch mira tom about the  key",
                watch(&["mira", "tom"], Some("the key")),
            ),
            ("/watch con_1", Command::Watch(Watch::Existing("con_1".into()))),
        ];
        for (line, command) in cases {
            assert_eq!(Command::parse(line), command, "{line}");
        }
    }

    #[test]
    fn chat_explains_commands_that_it_cannot_read() {
        for (line, advice) in [
            ("/dance", "no command /dance"),
            ("/rewind", "/rewind needs"),
            ("/rewind two", "/rewind needs"),
            ("/watch mira", "/watch needs"),
            ("/watch about the key", "/watch needs"),
        ] {
            let command = Command::parse(line);
            assert!(
                matches!(&command, Command::Unclear(fault) if fault.contains(advice)),
                "{command:?}"
            );
        }
    }
}
