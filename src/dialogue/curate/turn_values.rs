//! A turn in a curation prompt.

use minijinja::{Value, context};

use crate::{
    game_time::WorldDays,
    npc_conversation::SceneMember,
    prompt::{attribute_text, escape_untrusted},
};
use colloquy_memory::{authored::Npc, turn::Turn};
use colloquy_ports::{buffer::mark_if_interrupted, ledger::jobs::JobInput};

pub(super) fn turn_values(
    job_input: &JobInput,
    cast: &[(SceneMember, Option<Npc>)],
    days: &WorldDays<'_>,
    turn: &Turn,
) -> Value {
    let (date, weekday) = days.day_of(job_input.npc.language, turn.started_at);
    let speaker = cast.iter().find(|(member, _)| member.id == turn.npc);
    context! {
        number => turn.number,
        date, weekday,
        player => escape_untrusted(&turn.player_text),
        npc => escape_untrusted(&mark_if_interrupted(turn.reply_text.clone(), turn.status)),
        name => attribute_text(speaker.map_or(turn.npc.as_str(), |(member, _)| &member.name)),
    }
}
