//! The contract of the ledger port. Every adapter passes all of it; one joins with one line in
//! `ledger_contract!` and an implementation of [`Subject`].

mod audit;
mod authored;
mod backlog;
mod cuts;
mod dialogues;
mod durability;
mod edits;
mod facts;
mod fixture;
mod folding;
mod idempotency;
mod index;
mod jobs;
mod locks;
mod meetings;
mod names;
mod nodes;
mod postgres;
mod prune;
mod racing;
mod reconcile;
mod revocations;
mod rewinds;
mod saves;
mod scenarios;
mod sqlite;
mod state;
mod statistics;
mod summaries;
mod tenants;
mod timeline;
mod told;
mod usage;

use std::sync::Arc;

use async_trait::async_trait;
use colloquy::ports::{clock::ManualClock, ledger::Ledger, vectors::PointSource};

/// The checksum of migration 11 in the words of one build. Those are the same on both engines.
const REWORDED: &str =
    "aef5fd952adfb927dc5d5a87e6fd95ab4dc1d81bbe0897400b4b8893698849061b53ea0c0fe9a47aa2b5d44a9ffaeca0";

/// One adapter, as the suite sees it.
#[async_trait]
pub trait Subject: Send + Sync + Sized {
    /// An empty ledger that tells the time by `clock`.
    async fn fresh(clock: Arc<ManualClock>) -> Self;
    fn ledger(&self) -> &Ledger;
    fn points(&self) -> Arc<dyn PointSource>;
    /// Ends this process's use of the ledger and opens the same data again.
    async fn reopen(&mut self, clock: Arc<ManualClock>);
    /// The same, with vectors made by `model` from now on.
    async fn change_embedder(&mut self, clock: Arc<ManualClock>, model: &str);
    /// Tries to change and to delete every audit row behind the port's back; `true` if both were refused.
    async fn audit_resists(&self) -> bool;
}

macro_rules! ledger_contract {
    ($($adapter:ident: $subject:ty;)+) => {$(
        mod $adapter {
            ledger_contract!(@tests $subject;
                tenants: ensure_adds_once_and_all_lists, a_tenant_is_made_changed_and_listed, a_tenants_budget_is_kept_found_and_taken_away;
                revocations: the_latest_moments_count, revocations_are_dated_by_the_ledgers_clock, what_no_longer_matters_is_pruned;
                authored: worlds_are_put_read_listed_and_versioned, npcs_need_their_world,
                    deleting_a_world_hides_it_and_ends_its_dialogues,
                    deleting_an_npc_ends_the_dialogues_it_speaks_in,
                    authored_content_of_another_tenant_is_not_found;
                scenarios: scenarios_are_put_read_listed_and_versioned, what_is_locked_is_not_read,
                    scenarios_go_with_their_npc_and_their_world, an_npc_has_only_so_many_scenarios,
                    scenarios_are_embedded_anew, scenarios_of_another_tenant_are_not_found,
                    what_a_backend_says_of_the_world_stands_in_order;
                meetings: a_player_who_comes_again_was_met_before, of_what_a_summary_rests_on_nobody_may_know,
                    an_earlier_summary_of_a_session_stands_in_for_one_that_is_locked;
                dialogues: a_dialogue_reads_back_and_closes_once, a_conversation_is_paused_while_it_is_open,
                    only_its_owner_pauses_and_closes_a_dialogue, dialogues_are_listed_newest_first_and_filtered,
                    the_conversation_that_was_heard_last_is_found,
                    a_conversation_was_heard_by_those_who_may_listen,
                    claiming_takes_ownership_until_it_runs_out, claiming_reads_the_state_to_go_on_from,
                    what_is_given_up_is_anybodys,
                    renewing_needs_the_current_epoch, a_turn_reads_back_whole, a_stale_epoch_is_fenced,
                    a_stale_head_is_fenced, a_closed_dialogue_takes_no_more_turns, a_used_key_is_taken, of_two_commits_on_one_head_one_wins,
                    turns_are_read_by_range_id_and_key, what_was_private_in_a_dialogue_is_that_of_its_turns, dialogues_of_another_tenant_are_not_found;
                facts: a_created_fact_reads_back_whole, confirm_checks_validity_audience_and_privacy,
                    confirm_asks_about_the_moment_given, what_is_replaced_stays_so_when_that_is_said_again,
                    what_was_taken_out_is_told_to_who_might_have_used_it, bodies_carry_view_and_embedding,
                    standing_facts_are_ranked_and_limited, what_is_to_end_stands_until_then, a_designer_sees_what_is_private_to_any_player,
                    facts_are_listed_newest_first_in_pages,
                    facts_are_listed_by_filter, facts_of_another_tenant_are_not_found;
                locks: what_is_locked_is_confirmed_apart_and_stands_apart,
                    what_scenarios_require_is_read_of_those_that_are_there;
                names: who_is_who_is_told_to_those_who_may_know, a_name_counts_while_its_fact_is_valid;
                edits: editing_changes_the_view_and_not_the_statement, editing_checks_the_version,
                    removing_and_restoring_are_history;
                folding: a_duplicate_is_folded_into_the_newer_fact, restoring_a_duplicate_unfolds_it,
                    a_protected_fact_absorbs_the_newer_one, a_pinned_fact_keeps_its_words,
                    a_late_duplicate_does_not_give_the_older_words, folds_reach_through_chains_of_duplicates,
                    what_is_folded_in_at_once_comes_in_the_order_in_which_it_was_said,
                    an_edit_of_a_duplicate_reaches_what_it_is_folded_into, an_edit_after_a_fold_has_the_last_word,
                    the_earliest_standing_invalidation_counts;
                reconcile: a_reconciliation_writes_everything_at_once, a_fence_that_is_closed_lets_nothing_through,
                    memory_that_moved_is_told_and_nothing_is_written, of_two_plans_on_one_memory_one_is_told_to_look_again,
                    an_edit_by_a_person_moves_memory, memory_says_whether_anything_waits_for_the_index, verdicts_are_kept_by_pair, flags_are_history,
                    a_foreign_fact_cannot_be_invalidated, an_extraction_that_found_nothing_only_ends_its_job;
                timeline: a_timeline_has_what_was_said_or_ended_since, a_timeline_knows_what_people_changed,
                    a_timeline_has_what_was_pinned_and_what_it_was_folded_into;
                summaries: summaries_land_fade_and_are_evicted, a_summary_of_a_finished_job_is_fenced,
                    a_turn_is_summed_up_once,
                    summaries_of_another_tenant_are_untouched;
                state: standing_changes_come_in_order, state_is_read_on_from_where_it_was_left,
                    a_fenced_state_change_writes_nothing,
                    state_of_another_tenant_is_not_found;
                jobs: a_commit_leaves_its_jobs_leased, a_lease_is_prolonged_unless_another_has_the_job, held_jobs_wait_until_they_are_made_due, what_is_held_is_held_anew_when_its_turn_stands_again, a_job_reads_what_it_works_on, due_jobs_are_leased_oldest_first, a_failed_job_waits_and_dies,
                    leases_of_a_dead_process_are_released, what_was_of_no_use_is_counted_apart,
                    a_dead_job_is_tried_again_when_a_person_says_so, jobs_of_another_tenant_are_not_found, jobs_of_a_disabled_tenant_are_not_leased, jobs_are_listed_in_pages,
                    a_job_of_a_turn_that_stands_again_is_not_ended_for_its_absence,
                    an_answer_is_kept_until_its_job_is_done, what_a_job_used_is_summed_up_by_task;
                prune: what_is_too_old_goes_and_nothing_else, where_a_player_joined_is_told_for_good, what_was_unsaid_goes_unless_it_can_stand_again,
                    what_changed_nothing_goes_and_nothing_else, jobs_of_a_pinned_turn_are_not_pruned, what_was_judged_is_not_pruned_while_there_are_saves;
                rewinds: a_move_takes_back_what_later_turns_caused, moving_there_and_back_changes_nothing,
                    what_an_unsaid_turn_ended_is_valid_unless_another_ended_it_too,
                    a_turn_that_asked_to_forget_unsettles_when_it_goes_and_comes_back,
                    a_turn_that_ended_a_promise_unsettles_when_it_goes_and_comes_back,
                    what_many_know_is_taken_back_before_the_eyes_of_everybody,
                    what_was_under_way_for_an_unsaid_turn_cannot_write, a_move_that_may_not_be_made_writes_nothing,
                    a_move_pauses_a_conversation_and_has_it_go_on,
                    a_key_finds_its_move_and_moves_are_read_in_order, keys_of_others_find_the_move_that_served_them,
                    a_turn_that_goes_to_be_said_anew_can_stand_again_until_another_takes_its_place,
                    a_session_that_was_joined_from_an_unsaid_turn_is_closed, a_fold_of_state_begins_anew_once_some_was_taken_back,
                    turns_elsewhere_that_quoted_what_was_unsaid_are_named;
                cuts: a_cut_turn_is_replaced, what_a_player_joined_at_is_not_taken_up_again,
                    a_cut_turn_that_a_save_has_can_be_whole_again,
                    a_save_keeps_the_whole_of_its_cut_turn_when_another_is_deleted,
                    a_reply_that_was_cut_twice_can_be_whole_again_when_a_save_is_deleted,
                    a_turn_that_another_took_the_place_of_leaves_no_checkpoint,
                    a_turn_that_was_to_be_said_anew_and_goes_for_good_leaves_no_checkpoint, who_joined_a_line_stays_when_it_is_cut, a_turn_that_was_cut_has_not_concluded,
                    a_live_cut_is_sealed_audited_and_gone_on_with, a_reply_that_was_cut_twice_is_whole_again,
                    a_live_cut_that_is_cut_again_is_gone_on_with,
                    what_was_to_be_said_anew_stands_again_in_a_closed_dialogue;
                saves: saves_are_taken_listed_and_deleted, a_world_has_only_so_many_saves,
                    the_older_save_and_then_the_newer_come_back_whole, what_runs_while_a_save_is_loaded_cannot_write,
                    a_deleted_save_keeps_nothing, a_save_has_a_turn_that_is_being_said_anew, a_key_repeats_its_restore, a_save_is_one_moment_and_so_is_a_restore,
                    what_was_deleted_since_is_not_opened_again;
                audit: edits_are_listed_newest_first_in_pages, the_log_cannot_be_changed;
                idempotency: a_key_is_reserved_answered_and_remembered, a_released_key_is_free,
                    a_reservation_without_an_answer_runs_out, old_answers_are_swept, keys_belong_to_a_tenant;
                nodes: a_node_lives_as_long_as_it_says_so, what_a_dead_node_owns_is_anybodys,
                    what_a_node_that_lives_owns_stays_its_own,
                    what_a_node_that_left_owns_is_anybodys_at_once, a_dead_node_is_buried_once;
                usage: usage_adds_up_by_day_task_and_model, what_every_tenant_used_of_a_day_is_summed_by_model,
                    what_is_stored_is_counted_and_no_further_than_asked;
                index: words_are_of_what_may_be_used, facts_are_embedded_anew_in_their_own_words, the_outbox_names_every_fact_that_changed, points_are_of_valid_facts_only,
                    all_points_come_in_pages_by_id, a_knower_has_the_points_it_may_know,
                    vectors_of_another_embedder_are_not_read, facts_are_embedded_anew;
                backlog: queues_tell_how_many_wait_and_how_long, a_ledger_measures_its_waits_and_transactions,
                    grown_tables_are_counted_beside_writers;
                durability: what_was_acknowledged_is_there_after_reopening, a_failing_write_does_not_fail_its_neighbours,
                    a_write_is_done_though_its_caller_went_away, a_closed_ledger_says_so;
            );
        }
    )+};
    (@tests $subject:ty; $($aggregate:ident: $($test:ident),+;)+) => {$(
        mod $aggregate {
            $(#[tokio::test]
            async fn $test() {
                let mut fixture = crate::contracts::ledger::fixture::Fixture::<$subject>::new().await;
                crate::contracts::ledger::$aggregate::$test(&mut fixture).await;
            })+
        }
    )+};
}

ledger_contract! {
    on_sqlite: crate::contracts::ledger::sqlite::SqliteSubject;
    on_postgres: crate::contracts::ledger::postgres::PostgresSubject;
}
