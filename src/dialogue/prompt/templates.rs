//! The prompt templates of every language: included in the binary, replaceable by files.

use std::{hash::BuildHasher as _, path::Path, sync::Arc};

use minijinja::{Environment, UndefinedBehavior, Value, context};

use super::{
    action_parameters::describe_parameters,
    cached_world_lines::CachedWorldLines,
    content_hash::ContentHash,
    system::{BlockRequest, system_values},
    template_error::TemplateError,
    untrusted::escape_untrusted,
};
use colloquy_core::ids::{NpcId, PlayerId, TenantId, WorldId};
use colloquy_memory::{
    actions::{ActionRule, no_arguments},
    authored::{Language, Npc, World},
    directive::SelectedDirectives,
    keywords::with_particle,
    summary::ToldContent,
    text::join_words,
    tokens::TokenCounter,
};

/// The situation in which an NPC speaks without a line of the player.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplyOpening<'a> {
    /// The NPC's name.
    pub name: &'a str,
    /// True if the NPC has met the player, or knows the player's name.
    pub is_known: bool,
    /// True if they are talking, and the player says nothing.
    pub is_silent: bool,
    /// True if a chat program describes the character.
    pub is_own_prompt: bool,
}

macro_rules! templates {
    ($($(#[$doc:meta])* $template:ident = $file:literal,)+) => {
        /// The templates. Each has one file per language.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Template { $($(#[$doc])* $template,)+ }

        /// All templates with their file names and their English and Korean texts.
        const SHIPPED: &[(Template, &str, &str, &str)] = &[$((
            Template::$template,
            $file,
            include_str!(concat!("../../../config/prompts/en/", $file)),
            include_str!(concat!("../../../config/prompts/ko/", $file)),
        )),+];
    };
}

templates! {
    ReplySystem = "reply_system.j2",
    ReplyMemory = "reply_memory.j2",
    ReplyContext = "reply_context.j2",
    ReplyWorld = "reply_world.j2",
    /// The actions for which the NPC may ask, and what became of earlier ones.
    ReplyActions = "reply_actions.j2",
    ReplyLine = "reply_line.j2",
    /// Stands between what the server adds and the line of a chat program.
    ReplySaidNow = "reply_said_now.j2",
    /// Replaces the player's line if the NPC speaks first.
    ReplyGreeting = "reply_greeting.j2",
    /// Replaces the line of an earlier turn without a line.
    ReplyCameUp = "reply_came_up.j2",
    /// Asks for the continuation of a cut reply.
    ReplyGoOn = "reply_go_on.j2",
    /// The same as `ReplySystem`, for NPC conversations.
    ConversationSystem = "conversation_system.j2",
    /// A line of another NPC.
    ConversationLine = "conversation_line.j2",
    /// Asks an NPC for its next line.
    ConversationCue = "conversation_cue.j2",
    /// Asks for the next speaker.
    ConversationNext = "conversation_next.j2",
    ConversationExtraction = "conversation_extraction.j2",
    ConversationSummary = "conversation_summary.j2",
    /// A fact about a player who is not in the dialogue.
    AboutAnother = "about_another.j2",
    /// The attribution of a statement.
    Claimed = "claimed.j2",
    /// A remark before a remembered text.
    Remark = "remark.j2",
    /// A scenario of an NPC, for a model in another role.
    Past = "past.j2",
    /// An entry of the lore.
    Lore = "lore.j2",
    /// The episode of a turn, without a model.
    Episode = "episode.j2",
    /// The age of a statement.
    Ago = "ago.j2",
    /// A date in the words of the world.
    Day = "day.j2",
    /// The days between two turns of the history.
    Later = "later.j2",
    /// The date and the time of day of the world's clock.
    GameTime = "game_time.j2",
    Intent = "intent.j2",
    Extraction = "extraction.j2",
    Judge = "judge.j2",
    Summary = "summary.j2",
    State = "state.j2",
    Curation = "curation.j2",
    /// What became of a step of a curation pass.
    CurationOutcome = "curation_outcome.j2",
    /// Older memories that become fewer.
    Consolidation = "consolidation.j2",
}

impl Template {
    fn file_name(self, language: Language) -> String {
        let name = SHIPPED
            .iter()
            .find(|entry| entry.0 == self)
            .map_or("?", |entry| entry.1);
        format!("{}/{name}", language.as_str())
    }
}

/// The maximum number of cached token counts. Long texts (the persona, the history) recur turn after turn.
const MAX_CACHED_COUNTS: u64 = 100_000;
/// Counting a shorter text is faster than a look-up.
const MIN_CACHED_BYTES: usize = 48;

/// The maximum number of cached rendered player lines. Each line recurs in the history of every later turn.
const MAX_CACHED_LINES: u64 = 20_000;
/// The maximum number of cached lines about actions for which an NPC may ask.
const MAX_CACHED_ACTIONS: u64 = 2_000;
/// The maximum number of players and NPCs with cached lines about the world, which stay the same until the state changes.
const MAX_CACHED_WORLD_LINES: u64 = 10_000;
/// The maximum number of texts whose words are cached.
const MAX_CACHED_TOLD: u64 = 10_000;
/// The maximum number of NPCs with a cached first section, which stays the same until an edit.
const MAX_CACHED_SYSTEMS: u64 = 10_000;

/// The prompt templates of every language, with caches of rendered texts and token counts. All caches can be rebuilt.
pub struct Templates {
    env: Environment<'static>,
    counts: moka::sync::Cache<(TokenCounter, u64), u32>,
    lines: moka::sync::Cache<(Language, String), Arc<str>>,
    /// Lines about actions, by the texts of their values.
    actions: moka::sync::Cache<(Language, [String; 3]), Arc<str>>,
    systems: moka::sync::Cache<(WorldId, NpcId), Arc<CachedSystemPrompt>>,
    pub(super) world_lines: moka::sync::Cache<(TenantId, WorldId, NpcId, PlayerId), Arc<CachedWorldLines>>,
    /// The words of summaries and episodes, which recur in later turns.
    told_contents: moka::sync::Cache<String, Arc<ToldContent>>,
    hasher: std::hash::RandomState,
    /// The hash of the texts of all templates.
    source_hash: String,
}

impl Templates {
    /// Loads the templates of `config/prompts/`. Files of the same name in `dir` (`dir/en/reply_system.j2`, …)
    /// replace them.
    ///
    /// # Errors
    /// If a file cannot be read or parsed, or does not render with sample values. The error names the file.
    pub fn load(dir: Option<&Path>) -> anyhow::Result<Self> {
        let mut env = Environment::new();
        env.set_undefined_behavior(UndefinedBehavior::Strict);
        env.add_filter("with_particle", with_particle);
        env.add_filter("words", join_words);
        let mut sources = ContentHash::default();
        for language in [Language::En, Language::Ko] {
            for &(template, file, en, ko) in SHIPPED {
                let shipped = match language {
                    Language::En => en,
                    Language::Ko => ko,
                };
                let override_path = dir.map(|dir| dir.join(language.as_str()).join(file));
                let (source, origin) = match override_path.filter(|path| path.exists()) {
                    Some(path) => {
                        let text = std::fs::read_to_string(&path).map_err(|error| {
                            anyhow::anyhow!("the prompt template {} cannot be read: {error}", path.display())
                        })?;
                        (text, path.display().to_string())
                    }
                    None => (shipped.to_owned(), template.file_name(language)),
                };
                sources.add_text(&source);
                env.add_template_owned(template.file_name(language), source)
                    .map_err(|error| anyhow::anyhow!("the prompt template {origin} does not parse: {error:#}"))?;
            }
        }
        let templates = Self {
            env,
            counts: moka::sync::Cache::new(MAX_CACHED_COUNTS),
            lines: moka::sync::Cache::new(MAX_CACHED_LINES),
            actions: moka::sync::Cache::new(MAX_CACHED_ACTIONS),
            systems: moka::sync::Cache::new(MAX_CACHED_SYSTEMS),
            world_lines: moka::sync::Cache::new(MAX_CACHED_WORLD_LINES),
            told_contents: moka::sync::Cache::new(MAX_CACHED_TOLD),
            hasher: std::hash::RandomState::new(),
            source_hash: sources.finish(),
        };
        templates.try_render_all()?;
        Ok(templates)
    }

    /// Returns the first 8 hexadecimal digits of the SHA-256 of the templates' texts.
    pub(crate) fn source_hash(&self) -> &str {
        &self.source_hash
    }

    /// Renders `template`. Text of players or models among the values must have passed
    /// [`untrusted`](super::untrusted).
    pub(crate) fn render(
        &self,
        language: Language,
        template: Template,
        values: Value,
    ) -> Result<String, TemplateError> {
        let file = template.file_name(language);
        self.env
            .get_template(&file)
            .and_then(|compiled| compiled.render(values))
            .map_err(|error| TemplateError {
                message: format!("{error:#}"),
                file,
            })
    }

    /// Renders the request to speak without a line of the player.
    pub(crate) fn render_greeting(
        &self,
        language: Language,
        opening: &ReplyOpening<'_>,
    ) -> Result<Arc<str>, TemplateError> {
        let ReplyOpening {
            name,
            is_known,
            is_silent,
            is_own_prompt: own_prompt,
        } = *opening;
        let values = context! { name, is_known, is_silent, own_prompt };
        Ok(self.render(language, Template::ReplyGreeting, values)?.into())
    }

    /// Renders the line of an earlier turn in which the player said nothing: the player came up, or in the middle of a
    /// talk (`is_silent`) waited.
    pub(crate) fn render_unsaid_line(&self, language: Language, is_silent: bool) -> Result<Arc<str>, TemplateError> {
        Ok(self
            .render(language, Template::ReplyCameUp, context! { is_silent })?
            .into())
    }

    /// Renders a player's line. If it has the words of others too (`hears_others`), with the rule that tells them apart.
    pub(crate) fn render_line(
        &self,
        language: Language,
        line: &str,
        hears_others: bool,
    ) -> Result<Arc<str>, TemplateError> {
        let values = context! { line => escape_untrusted(line), hears_others };
        if hears_others {
            return Ok(self.render(language, Template::ReplyLine, values)?.into());
        }
        let key = (language, line.to_owned());
        if let Some(cached) = self.lines.get(&key) {
            return Ok(cached);
        }
        let rendered: Arc<str> = self.render(language, Template::ReplyLine, values)?.into();
        self.lines.insert(key, rendered.clone());
        Ok(rendered)
    }

    /// Renders the line about an action for which the NPC may ask.
    pub(crate) fn render_offer(&self, language: Language, rule: &ActionRule) -> Result<Arc<str>, TemplateError> {
        let takes_some = rule.arguments != no_arguments();
        let schema = takes_some.then(|| rule.arguments.to_string());
        let name = rule.name.clone();
        let description = rule.description.clone();
        let key = (language, [name, description, schema.clone().unwrap_or_default()]);
        if let Some(cached) = self.actions.get(&key) {
            return Ok(cached);
        }
        let parameters = describe_parameters(&rule.arguments);
        // A schema that no list of parameters describes has one line, and stays JSON.
        let arguments = schema.filter(|_| parameters.is_none());
        let values = context! {
            name => rule.name.as_str(), description => escape_untrusted(&rule.description), arguments, parameters,
            status => (), text => (), ago => (),
        };
        let rendered: Arc<str> = self.render(language, Template::ReplyActions, values)?.trim().into();
        self.actions.insert(key, rendered.clone());
        Ok(rendered)
    }

    /// Renders section 1: the NPC and its world.
    pub(crate) fn render_system(
        &self,
        world: &World,
        npc: &Npc,
        directives: &SelectedDirectives,
        block_request: BlockRequest,
    ) -> Result<Arc<str>, TemplateError> {
        // Tenants may use equal names, and rows are edited. The cached text is valid only for identical rows.
        let key = (world.id.clone(), npc.id.clone());
        if let Some(cached) = self.systems.get(&key)
            && cached.is_rendered_from(world, npc, directives, block_request)
        {
            return Ok(cached.text.clone());
        }
        let values = system_values(world, npc, directives, block_request, Vec::new());
        let text: Arc<str> = self.render(npc.language, Template::ReplySystem, values)?.into();
        let cached = CachedSystemPrompt {
            world: world.clone(),
            npc: npc.clone(),
            directives: directives.clone(),
            block_request,
            text: text.clone(),
        };
        self.systems.insert(key, Arc::new(cached));
        Ok(text)
    }

    /// Renders what the server adds to the description of a character by a chat program.
    pub(crate) fn render_addition_to_own_prompt(
        &self,
        world: &World,
        npc: &Npc,
        directives: &SelectedDirectives,
        block_request: BlockRequest,
    ) -> Result<Arc<str>, TemplateError> {
        let values = context! {
            own_prompt => true,
            ..system_values(world, npc, directives, block_request, Vec::new())
        };
        Ok(self.render(npc.language, Template::ReplySystem, values)?.into())
    }

    /// Returns the words of a summary or an episode.
    pub(crate) fn told_content(&self, text: &str) -> Arc<ToldContent> {
        if let Some(cached) = self.told_contents.get(text) {
            return cached;
        }
        let content = Arc::new(ToldContent::of_text(text));
        self.told_contents.insert(text.to_owned(), Arc::clone(&content));
        content
    }

    /// Counts the tokens of `text`. Counts of longer texts are cached.
    pub(crate) fn count_tokens(&self, counter: TokenCounter, text: &str) -> u32 {
        if counter == TokenCounter::Estimated || text.len() < MIN_CACHED_BYTES {
            return counter.count_tokens(text);
        }
        let key = (counter, self.hasher.hash_one(text));
        self.counts.get_with(key, || counter.count_tokens(text))
    }

    /// Renders all templates with empty and with full values. A template with an unknown value then fails at startup,
    /// not in a turn.
    fn try_render_all(&self) -> Result<(), TemplateError> {
        let empty = Vec::<String>::new();
        let one_text = vec!["x".to_owned()];
        for texts in [empty, one_text] {
            let list = || Value::from(texts.clone());
            let each = |value: Value| texts.iter().map(|_| value.clone()).collect::<Vec<_>>();
            let entry = context! { text => "x", ago => "x", turn => 1, overdue => true, end => "fulfilled" };
            let entries = || each(entry.clone());
            let values = context! {
                ask_for_state => !texts.is_empty(), ask_if_nothing_new => !texts.is_empty(), can_ask_actions => !texts.is_empty(), players_language => !texts.is_empty(), spoken => "en",
                who => each(context! { names => list(), ago => "x", summary => "x", before => "x" }).pop(),
                pinned => each(context! { text => "x" }),
                summaries => each(context! { from => 1, to => 2, ago => "x", text => "x" }),
                canon => entries(), promises => entries(), told => entries(), own => entries(), facts => entries(),
                today => if texts.is_empty() { "" } else { "x" }, days => texts.len(), by => "character",
                description => "x", arguments => "x", ago => "x", status => if texts.is_empty() { "" } else { "done" },
                offers => list(), outcomes => list(), scene_notes => list(), own_prompt => texts.is_empty(),
                corrections => each(context! { present => "x", outdated => "x" }), duties => entries(),
                ended => entries(),
                unknown_to => list(), witnesses => list(), dead_name => "x", dead_party => "x", is_known => texts.is_empty(), is_silent => texts.is_empty(), is_whole => texts.is_empty(), hears_others => texts.is_empty(), parameters => each(context! {
                    name => "x", optional => true, type => "text", values => list(), min => "0", max => "1", description => "x",
                }),
                direct => texts.is_empty(), compress => texts.is_empty(), has_player => texts.is_empty(), max_text => 1, max_edits => 1, max_memory => 1,
                max_insights => 1, max_insight => 1, max_keywords => 1,
                memories => each(context! { about => "x", from => "x", day => "x", text => "x" }),
                memory => list(), size => 1, cast => each(context! { name => "x", description => "x" }),
                learned => each(context! { turn => 1, by => "x", text => "x" }), entries => each(context! { name => "x", text => "x", dead => list() }),
                findings => each(context! { id => "F1", kind => "event", decision => "open", decided => false, earlier => true, text => "x", reason => "x" }),
                results => each(context! { what => "edit", number => 1, fault => (), by => 1 }),
                turns => each(context! {
                    number => 1, player => "x", npc => "x", name => "x", date => "x", weekday => "x", happened => list(),
                }),
                earlier_turns => each(context! { player => "x", npc => "x", name => "x", date => "x", weekday => "x" }),
                earlier_notes => list(), told_past => list(), events => list(), notes => list(),
                overheard => each(context! { name => "x", text => "x" }),
                past => each(context! { is_asked => true, told => list(), opened => list() }).pop(), news => "told",
                lore => list(), tells => list(), content => "x",
                episodes => each(context! { ago => "x", turn => 1, place => "x", text => "x" }),
                insights => each(context! { id => "I1", day => "x", ago => "x", entity => "x", text => "x" }),
                story => each(context! { part => "event", text => "x" }),
                now => each(context! { who => "x", place => "x", status => "x", item => "x" }),
                candidates => each(context! { id => "x", name => "x" }), said => each(context! { name => "x", text => "x" }),
                others => list(), several => true, listeners => list(), before => list(), end_mark => "x", name => "x",
                topic => if texts.is_empty() { "" } else { "x" }, opening => texts.is_empty(), last => !texts.is_empty(),
                titles => list(), ready => list(), known => list(), open => each(context! { text => "x", overdue => true }), subjects => list(), previous => list(),
                forgotten => list(), npc_name => "x", line => "x", reply => "x", date => "x", weekday => "x",
                calendar => if texts.is_empty() { "" } else { "x" }, day => 1, month => "x", year => "x", time => "x",
                has_year_label => texts.is_empty(), part => "night", hour => 1, minute => 1, week => list(),
                pairs => each(context! { older => "x", newer => "x" }),
                player => "x", text => "x",
                ..world_values(&texts)
            };
            for language in [Language::En, Language::Ko] {
                for &(template, ..) in SHIPPED {
                    self.render(language, template, values.clone())?;
                }
            }
        }
        Ok(())
    }
}

/// Returns values of the world, its people and its state, with `texts` in every list.
fn world_values(texts: &[String]) -> Value {
    let list = || Value::from(texts.to_vec());
    let each = |value: Value| vec![value; texts.len()];
    let people = each(context! {
        name => "x", location => "x", status => "x", mood => "x", hp => 1, items => list(), with => list(),
        attributes => list(), has_nothing => texts.is_empty(), is_last_location => texts.is_empty(),
    });
    context! {
        world => context! { name => "x", premise => "x", rules => list() },
        npc => context! { name => "x", description => "x", speech_style => "x", boundaries => list(), cues => list() },
        directives => context! { texts => list(), instructions => list(), fails_if => list() },
        bounds => context! {
            relationship => 1, hp => 1, moods => ["x"], kinds => ["x"], statuses => ["x"], items => list(), places => list(),
            attributes => each(context! { name => "x", of => "players", type => "text", values => ["x"], min => "0", max => "1", max_delta => "1" }),
        },
        near => list(), dead => list(), ways => list(), world_attributes => list(), ghosts => false,
        world_state => list(),
        state => each(context! { name => "x", location => "x", hp => 1, status => "x", since => 1, items => list() }),
        characters => people.clone(), bystanders => people,
        relationships => each(context! { from => "x", to => "x", kind => "x", strength => 1 }),
    }
}

/// A rendered first section, with its inputs.
struct CachedSystemPrompt {
    world: World,
    npc: Npc,
    directives: SelectedDirectives,
    block_request: BlockRequest,
    text: Arc<str>,
}

impl CachedSystemPrompt {
    fn is_rendered_from(
        &self,
        world: &World,
        npc: &Npc,
        directives: &SelectedDirectives,
        block_request: BlockRequest,
    ) -> bool {
        self.block_request == block_request
            && self.directives == *directives
            && self.world == *world
            && self.npc == *npc
    }
}

impl std::fmt::Debug for Templates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Templates").finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{
        super::tests::{npc, world},
        *,
    };

    #[test]
    fn shipped_templates_load() {
        Templates::load(None).unwrap();
    }

    #[test]
    fn template_file_replaces_a_shipped_template() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("en")).unwrap();
        std::fs::write(dir.path().join("en/reply_line.j2"), "says: {{ line }}").unwrap();
        let templates = Templates::load(Some(dir.path())).unwrap();
        let line = |language| {
            templates
                .render(
                    language,
                    Template::ReplyLine,
                    context! { line => "hi", hears_others => true },
                )
                .unwrap()
        };
        assert_eq!(line(Language::En), "says: hi");
        assert!(line(Language::Ko).contains("<player_line>"));
    }

    #[test]
    fn faulty_template_is_named_at_startup() {
        for (text, fault) in [
            ("{{ line", "does not parse"),
            ("{{ no_such_value }}", "cannot be rendered"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::create_dir(dir.path().join("ko")).unwrap();
            std::fs::write(dir.path().join("ko/intent.j2"), text).unwrap();
            let error = Templates::load(Some(dir.path())).unwrap_err().to_string();
            assert!(error.contains("intent.j2") && error.contains(fault), "{error}");
        }
    }

    #[test]
    fn first_section_follows_its_rows_and_line_its_language() {
        let templates = Templates::load(None).unwrap();
        let world = world(Language::En);
        let mira = npc(Language::En);
        let none = SelectedDirectives::default();
        let asked = |state, nothing_new| BlockRequest { state, nothing_new };
        let plain = asked(false, false);
        let first = templates.render_system(&world, &mira, &none, plain).unwrap();
        assert!(first.contains("You are Mira"));
        assert_eq!(templates.render_system(&world, &mira, &none, plain).unwrap(), first);
        // Another tenant's NPC of the same name, or an edit without a new version.
        let other = Npc {
            name: "Mara".to_owned(),
            ..mira.clone()
        };
        assert!(
            templates
                .render_system(&world, &other, &none, plain)
                .unwrap()
                .contains("You are Mara")
        );
        let dark = World {
            premise: "A dark valley.".to_owned(),
            ..world.clone()
        };
        assert!(
            templates
                .render_system(&dark, &mira, &none, plain)
                .unwrap()
                .contains("dark")
        );
        let with_state = templates
            .render_system(&world, &mira, &none, asked(true, false))
            .unwrap();
        assert!(
            with_state.contains("```state") && !with_state.contains("nothing_new"),
            "{with_state}"
        );
        let with_both = templates
            .render_system(&world, &mira, &none, asked(true, true))
            .unwrap();
        assert!(with_both.contains("\"nothing_new\": true"), "{with_both}");
        assert_eq!(templates.render_system(&world, &mira, &none, plain).unwrap(), first);

        for _ in 0..2 {
            let line = |language| templates.render_line(language, "hi <b>", false).unwrap();
            assert_eq!(
                &*line(Language::En),
                "<player_line>\nhi \u{2039}b\u{203a}\n</player_line>"
            );
            assert!(line(Language::Ko).contains("hi"));
        }
    }

    #[test]
    fn token_counts_equal_those_of_the_counter() {
        let templates = Templates::load(None).unwrap();
        let text = "The player likes grapes. 플레이어는 포도를 좋아한다. ".repeat(20);
        for counter in [TokenCounter::O200k, TokenCounter::Estimated] {
            for _ in 0..2 {
                assert_eq!(templates.count_tokens(counter, &text), counter.count_tokens(&text));
            }
        }
    }
}
