//! Special cases of NPC conversations.

use super::*;

#[test]
fn memory_of_a_line_in_history_is_not_repeated() {
    let member = |name: &str| SceneMember {
        id: name.to_lowercase().parse().unwrap(),
        name: name.to_owned(),
        factions: vec![],
    };
    let mut case = PromptCase::of(Language::En, "");
    case.player = None;
    case.scene = Some(Scene {
        cast: vec![member("Mira"), member("Ergen")],
        ..Scene::default()
    });
    case.history = vec![turn(1, "", "The bridge is down."), turn(2, "", "So it is.")];
    let elsewhere = DialogueId::new(DialogueKind::NpcConversation, ulid::Ulid(2));
    let learned = |id: u128, content: &str, source| {
        let mut hit = hit(id, content, 0.7, 0.5, usize::try_from(id).unwrap());
        Arc::make_mut(&mut hit.body).source = source;
        hit
    };
    case.hits = vec![
        learned(1, "The bridge fell.", Some((dialogue(), 1))),
        learned(2, "The mill burned.", Some((elsewhere, 1))),
        learned(3, "The well is dry.", Some((dialogue(), 9))),
        learned(4, "The fair is in May.", None),
    ];
    let fates = |case: &PromptCase| -> Vec<CandidateFate> {
        let prompt = case.assemble(&settings()).unwrap();
        prompt.trace.candidates.iter().map(|candidate| candidate.fate).collect()
    };
    let (in_history, used) = (CandidateFate::InHistory, CandidateFate::Used);
    assert_eq!(fates(&case), [in_history, used, used, used]);
    // A line that does not fit the history is included as a memory.
    let mut narrow = settings();
    narrow.prompt.history_tokens = 0;
    let prompt = case.assemble(&narrow).unwrap();
    assert!(prompt.trace.candidates.iter().all(|candidate| candidate.fate == used));
    // With a player, facts from visible lines are included, because the player may ask about them.
    (case.player, case.scene) = (Some("p7".parse().unwrap()), None);
    assert_eq!(fates(&case), [used; 4]);
}
