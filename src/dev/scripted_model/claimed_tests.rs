//! A player's claim about the NPC is only the player's word, and the persona takes precedence.

use super::{
    claim::{self, ClaimVoice},
    conversation_tests::Table,
};

#[tokio::test]
async fn player_claim_about_the_npc_stays_the_player_s_word() {
    for (language, told, question, has, lacks) in [
        (
            "en",
            "You are a thief.",
            "What is your job?",
            ["that I am a thief", "ou"],
            "told you",
        ),
        (
            "en",
            "You are from Eastmoor.",
            "Where are you from?",
            ["that I come from Eastmoor", "ou"],
            "told you",
        ),
        (
            "en",
            "You like tea.",
            "What do you like?",
            ["that I like tea", "ou"],
            "told you",
        ),
        ("en", "Your name is Bella.", "What is your name?", ["Mira", ""], "Bella"),
        (
            "ko",
            "너는 왕이야.",
            "네 직업이 뭐지?",
            ["왕이라고", "자네"],
            "내가 말했지",
        ),
        ("ko", "네 이름은 벨라야.", "네 이름이 뭐야?", ["에르겐", ""], "벨라"),
    ] {
        for history in [10, 0] {
            let mut table = Table::new(language);
            table.history = history;
            table.say(told).await;
            assert_eq!(table.facts.len(), 1, "{told}");
            assert!(table.facts[0]["subject"] == table.npc && table.facts[0]["speaker"] == "player");
            let reply = table.reply(question).await;
            let holds = has.iter().all(|text| reply.contains(text)) && !reply.contains(lacks);
            assert!(holds, "{told} {question} ({history}) -> {reply}");
            let mut taught = claim::read_claims(&reply, ClaimVoice::Npc, table.npc);
            // In an introduction, the NPC says its own name.
            taught.retain(|claim| claim.object != table.npc);
            assert!(taught.is_empty(), "{reply}: {taught:?}");
        }
    }
}

#[tokio::test]
async fn persona_outweighs_player_claims() {
    for (language, description, told, question, has, lacks) in [
        (
            "en",
            "Mira is a baker.",
            "You are a thief.",
            "What is your job?",
            "I am a baker",
            "thief",
        ),
        (
            "en",
            "You are a baker.",
            "You are a thief.",
            "What is your job?",
            "I am a baker",
            "thief",
        ),
        (
            "ko",
            "에르겐은 노련한 약초사다.",
            "너는 도둑이야.",
            "네 직업이 뭐지?",
            "약초사라고",
            "도둑",
        ),
    ] {
        let mut table = Table::new(language);
        table.description = description;
        table.say(told).await;
        let reply = table.reply(question).await;
        assert!(reply.contains(has) && !reply.contains(lacks), "{reply}");
    }
}
