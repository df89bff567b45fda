//! The contract of the ledger port. Every adapter passes the whole suite. To add an adapter, implement
//! [`LedgerSubject`] and add a line to `ledger_contract!`.

mod actions;
mod audit;
mod authored;
mod backlog;
mod consolidation;
mod curation;
mod curator;
mod cuts;
mod dialogues;
mod directives;
mod durability;
mod edits;
mod episodes;
mod facts;
mod fixture;
mod flags;
mod folding;
mod idempotency;
mod index;
mod insights;
mod jobs;
mod locks;
mod lore;
mod meetings;
mod names;
mod nodes;
mod pass_facts;
mod postgres;
mod prune;
mod reconcile;
mod revocations;
mod rewind_contention;
mod rewind_fixtures;
mod rewinds;
mod saves;
mod scenarios;
mod sqlite;
mod state;
mod statistics;
mod summaries;
mod tenants;
mod timeline;
mod turn_memory;
mod usage;
mod webhooks;

use std::sync::Arc;

use async_trait::async_trait;
use colloquy::ports::{clock::ManualClock, ledger::Ledger, vectors::PointSource};

/// The checksum of migration 11 in another build's wording, equal on both engines.
const OTHER_BUILD_CHECKSUM: &str =
    "aef5fd952adfb927dc5d5a87e6fd95ab4dc1d81bbe0897400b4b8893698849061b53ea0c0fe9a47aa2b5d44a9ffaeca0";

/// One adapter, as the suite sees the adapter.
#[async_trait]
pub trait LedgerSubject: Send + Sync + Sized {
    /// Opens an empty ledger that takes the time from `clock`.
    async fn open_empty(clock: Arc<ManualClock>) -> Self;
    fn ledger(&self) -> &Ledger;
    fn points(&self) -> Arc<dyn PointSource>;
    /// Closes the ledger in this process and opens the same data again.
    async fn reopen(&mut self, clock: Arc<ManualClock>);
    /// Reopens the ledger with `model` as the embedder of new vectors.
    async fn change_embedder(&mut self, clock: Arc<ManualClock>, model: &str);
    /// Tries to change and delete all audit rows without the port. `true` if both attempts were refused.
    async fn is_audit_immutable(&self) -> bool;
    /// Replaces the stored outcome of a key without the port.
    async fn overwrite_outcome(&self, key: &str, outcome: &str);
}

macro_rules! ledger_contract {
    ($($adapter:ident: $subject:ty;)+) => {$(
        mod $adapter {
            ledger_contract!(@tests $subject;
                tenants: tenants_are_ensured_once_and_all_listed, tenant_is_created_changed_and_listed, tenant_budget_is_stored_read_and_removed;
                revocations: latest_revocation_moment_counts, revocations_are_dated_by_the_ledger_clock, expired_revocations_are_pruned;
                authored: worlds_are_created_read_listed_and_versioned, npcs_require_their_world,
                    world_deletion_hides_it_and_ends_its_dialogues,
                    npc_deletion_ends_the_dialogues_it_speaks_in,
                    authored_content_of_another_tenant_is_not_found,
                    model_names_are_versioned_and_of_one_tenant,
                    tenant_settings_are_versioned_and_read_with_each_world;
                lore: lore_is_created_read_listed_versioned_and_hidden, lore_is_imported_whole,
                    lore_of_another_embedder_is_embedded_again;
                scenarios: scenarios_are_created_read_listed_and_versioned, locked_scenarios_are_not_read,
                    scenarios_are_deleted_with_their_npc_and_their_world, scenarios_of_an_npc_are_limited,
                    scenarios_are_reembedded, scenarios_of_another_tenant_are_not_found,
                    backend_reports_of_a_world_are_in_order;
                directives: directives_are_created_read_listed_versioned_and_deleted, directives_of_a_world_are_limited;
                meetings: returning_player_has_a_last_meeting, meeting_summary_that_rests_on_a_lock_is_hidden,
                    earlier_session_summary_replaces_a_locked_one;
                dialogues: dialogue_round_trips_and_closes_once, conversation_can_be_paused_only_while_open,
                    dialogue_is_paused_and_closed_only_by_its_owner, dialogues_are_listed_newest_first_and_filtered, dialogues_are_filtered_by_the_name_of_their_talk, dialogues_are_filtered_by_key_pattern,
                    conversation_heard_last_is_found,
                    conversation_counts_as_heard_by_its_allowed_listeners,
                    claim_holds_ownership_until_it_expires, claim_reads_the_state_to_continue_from,
                    released_dialogue_may_be_claimed_by_any_node,
                    renewal_requires_the_current_epoch, turn_round_trips_whole, stale_epoch_is_fenced,
                    stale_head_is_fenced, closed_dialogue_accepts_no_turns, used_idempotency_key_is_rejected, concurrent_commits_on_one_head_have_one_winner,
                    turns_are_read_by_range_id_and_key, confided_words_of_a_dialogue_are_those_of_its_turns, dialogues_of_another_tenant_are_not_found;
                facts: created_fact_round_trips_whole, fact_confirmation_checks_validity_audience_and_privacy,
                    fact_confirmation_uses_the_given_moment, replaced_fact_stays_replaced_when_its_replacement_is_repeated,
                    removed_fact_is_reported_to_viewpoints_that_could_know_it, ended_promises_are_reported_latest_first,
                    fact_bodies_carry_view_and_embedding,
                    standing_facts_are_ranked_and_limited, expiring_fact_stands_until_its_expiry, designer_sees_facts_private_to_any_player,
                    facts_are_listed_newest_first_in_pages,
                    facts_are_listed_by_filter, facts_of_another_tenant_are_not_found;
                locks: locked_facts_are_confirmed_and_stand_separately,
                    scenario_requirements_are_read_only_of_existing_scenarios;
                names: names_are_read_by_permitted_viewpoints_only, name_counts_while_its_fact_is_valid;
                edits: edit_changes_the_view_and_not_the_statement, edit_checks_the_version,
                    removal_and_reinstatement_are_recorded_in_history;
                flags: dismissed_contradiction_stays_decided, accepted_contradiction_ends_the_fact_while_it_is_said,
                    corrected_fact_is_replaced_and_unsaid_with_its_turn, corrected_dates_are_kept_and_past_facts_end,
                    personal_data_is_flagged_until_known, merged_statements_are_flagged_until_decided,
                    statements_of_two_objects_are_flagged_while_said, flags_are_listed_in_pages,
                    concurrent_decisions_leave_one_end, flags_of_another_tenant_or_world_are_not_found,
                    decisions_about_unsaid_turns_are_pruned;
                folding: duplicate_is_folded_into_the_newer_fact, duplicate_reinstated_is_unfolded,
                    protected_fact_absorbs_the_newer_duplicate, pinned_fact_keeps_its_words,
                    late_duplicate_does_not_override_with_older_words, folds_reach_through_chains_of_duplicates,
                    facts_folded_at_once_are_folded_in_spoken_order,
                    edit_of_a_duplicate_reaches_the_target_of_its_fold, edit_after_a_fold_has_the_last_word,
                    earliest_standing_invalidation_counts;
                reconcile: reconciliation_writes_everything_at_once, closed_fence_rejects_all_writes,
                    memory_changed_since_the_plan_is_reported_and_left_unwritten, concurrent_plans_on_one_memory_make_one_retry,
                    manual_edit_advances_the_memory_version, memory_reports_pending_index_writes, verdicts_are_stored_by_pair, flags_are_recorded_in_history,
                    foreign_fact_cannot_be_invalidated, extraction_without_facts_only_ends_its_job;
                timeline: timeline_has_statements_made_or_ended_since_its_start, timeline_includes_manual_changes,
                    timeline_includes_pins_and_fold_targets;
                summaries: summaries_are_stored_faded_and_evicted, summary_of_a_finished_job_is_fenced,
                    turn_is_summarised_once,
                    summaries_of_another_tenant_are_unchanged;
                state: standing_changes_are_in_order, state_is_read_on_from_the_last_position,
                    fenced_state_change_writes_nothing, clock_goes_on_after_a_change_of_its_ratio,
                    clock_changes_follow_those_of_a_node_whose_time_is_ahead,
                    state_of_another_tenant_is_not_found;
                actions: actions_are_committed_with_their_turn_in_order, action_is_answered_once,
                    action_is_unsaid_and_stands_again_with_its_turn, actions_are_listed_by_status_and_dialogue,
                    latest_actions_of_a_dialogue_are_found, actions_that_wait_in_other_dialogues_are_found, done_actions_are_named_until_their_turn_is_unsaid, actions_of_unsaid_turns_are_pruned,
                    actions_of_another_tenant_are_not_found;
                episodes: episode_is_written_once_with_its_facts, episodes_are_found_by_age_importance_and_vectors,
                    episodes_are_listed_newest_first_in_pages, episode_is_unsaid_and_stands_again_with_its_turn,
                    shortened_turn_without_an_extraction_keeps_its_episode, episodes_of_another_embedder_are_embedded_again,
                    episode_stored_without_a_vector_is_embedded_later,
                    episodes_of_unsaid_turns_are_pruned, episodes_of_another_pair_or_tenant_are_not_found;
                turn_memory: turn_memory_has_the_parts_of_their_own_reads;
                curation: pass_is_stored_once_with_its_findings, decisions_of_persons_stay,
                    open_findings_notes_and_short_sessions_are_carried,
                    pass_is_unsaid_and_stands_again_with_its_turn, pass_is_queued_for_the_last_turn,
                    findings_and_passes_are_listed_in_pages, curation_of_unsaid_turns_is_pruned,
                    curation_of_another_tenant_or_world_is_not_found;
                pass_facts: facts_for_a_pass_rest_on_its_dialogue, authored_facts_for_a_pass_are_open_to_its_player;
                insights: newest_insight_of_an_entity_and_day_counts, newest_fifty_insights_of_a_player_count,
                    insights_are_listed_in_pages_by_entity_and_player, insight_is_deleted_with_those_that_it_replaced,
                    insight_with_further_locks_stands_beside_the_open_one,
                    insights_of_unsaid_turns_are_pruned, insights_of_another_npc_tenant_or_player_are_not_found;
                consolidation: conclusion_stands_for_its_premises, conclusion_falls_with_a_premise,
                    conclusion_of_an_unsaid_premise_was_never_valid, conclusion_falls_if_a_person_rewords_a_premise,
                    group_is_consolidated_again_after_a_change, conclusion_that_a_person_has_changed_stays, expired_conclusion_gives_importance_back, consolidation_of_an_unsaid_turn_is_not_written,
                    taught_facts_are_read_in_pages_and_worlds_once_a_period;
                jobs: commit_leaves_its_jobs_leased, job_lease_is_extended_unless_taken_by_another_node, held_jobs_wait_until_made_due, held_job_is_held_again_when_its_turn_is_reinstated, job_reads_its_input, job_of_facts_reads_events_and_notes_of_its_turn, due_jobs_are_leased_oldest_first, failed_job_waits_and_finally_dies,
                    leases_of_a_dead_process_are_released, useless_attempts_are_counted_separately,
                    dead_job_is_retried_on_request, jobs_of_another_tenant_are_not_found, jobs_of_a_disabled_tenant_are_not_leased, jobs_are_listed_in_pages, learning_progress_counts_standing_turns,
                    job_of_a_reinstated_turn_is_not_ended_as_unsaid,
                    job_answer_is_stored_until_the_job_is_done, job_usage_is_summed_by_task;
                curator: silence_check_waits_from_the_first_turn_after_the_last_check,
                    silence_check_of_a_changed_dialogue_is_not_settled,
                    summary_after_a_silence_is_one_job_of_the_last_turn,
                    silence_check_counts_summaries_and_ended_conversations,
                    curator_report_shows_queue_ends_and_failures, curator_report_is_bounded;
                prune: expired_rows_alone_are_pruned, join_position_survives_pruning, unsaid_rows_are_pruned_unless_they_can_stand_again,
                    unchanged_rows_alone_are_pruned, jobs_of_a_pinned_turn_are_not_pruned, verdicts_are_not_pruned_while_a_save_exists;
                rewinds: rewind_lifts_rows_caused_by_later_turns, rewind_there_and_back_changes_nothing,
                    fact_ended_by_an_unsaid_turn_is_valid_unless_ended_twice,
                    turn_with_a_forget_request_marks_memory_dirty_on_rewind_and_reinstatement,
                    turn_that_ended_a_promise_marks_memory_dirty_on_rewind_and_reinstatement,
                    rewind_of_widely_known_facts_advances_the_shared_memory_version,
                    job_of_an_unsaid_turn_cannot_write, rejected_rewind_writes_nothing,
                    rewind_pauses_a_conversation_and_resume_continues_it,
                    rewind_key_finds_its_rewind_and_rewinds_are_read_in_order, keys_of_coalesced_callers_find_the_rewind_that_served_them,
                    turn_pending_regeneration_can_stand_again_until_replaced,
                    session_joined_from_an_unsaid_turn_is_closed, state_fold_restarts_after_a_rewind,
                    remote_turns_that_quoted_unsaid_text_are_named;
                cuts: cut_turn_is_replaced, line_joined_by_a_player_cannot_be_resumed,
                    cut_turn_in_a_save_can_be_restored_whole,
                    save_retains_its_whole_cut_turn_when_another_save_is_deleted,
                    reply_cut_twice_can_be_restored_whole_after_a_save_is_deleted,
                    replaced_turn_leaves_no_checkpoint,
                    turn_removed_while_pending_regeneration_leaves_no_checkpoint, session_joined_at_a_line_survives_its_cut, cut_turn_has_not_concluded,
                    live_cut_is_sealed_audited_and_continued, reply_cut_twice_is_restored_whole,
                    live_cut_that_is_cut_again_is_continued,
                    turn_pending_regeneration_stands_again_in_a_closed_dialogue;
                saves: saves_are_taken_listed_and_deleted, saves_of_a_world_are_limited,
                    saves_older_then_newer_are_restored_whole, work_running_during_a_restore_cannot_write,
                    deleted_save_retains_nothing, save_includes_a_turn_being_regenerated, restore_key_repeats_its_restore, save_and_restore_are_atomic,
                    dialogue_of_a_deleted_npc_is_not_reopened_by_a_restore, restore_sets_the_clock_of_its_world_back;
                audit: audit_edits_are_listed_newest_first_in_pages, audit_log_is_immutable, old_lines_of_the_audit_log_are_pruned;
                idempotency: idempotency_key_is_reserved_answered_and_remembered, released_idempotency_key_is_free,
                    reservation_without_an_answer_expires, old_answers_are_swept, idempotency_keys_belong_to_a_tenant;
                nodes: node_lives_as_long_as_its_heartbeat_says, dialogues_of_a_dead_node_may_be_claimed_by_any_node,
                    dialogues_of_a_living_node_stay_its_own,
                    dialogues_of_a_departed_node_may_be_claimed_at_once, dead_node_is_removed_once;
                usage: usage_is_summed_by_day_task_and_model, usage_of_all_tenants_is_summed_by_day_and_model, usage_of_dialogues_is_summed_by_world_and_npc, usage_and_turns_of_a_player_are_counted_for_its_share,
                    stored_rows_are_counted_up_to_the_requested_limit,
                    authored_objects_are_counted_as_they_come_and_go,
                    authored_objects_written_at_once_keep_the_limit;
                webhooks: webhooks_are_created_read_changed_and_deleted, turn_writes_its_messages_in_order,
                    rejected_commit_writes_no_message, webhook_gets_its_types_and_worlds_alone,
                    rewind_writes_retractions_after_their_events, restored_save_takes_turns_back_and_tells_of_ends,
                    message_holds_back_later_ones_of_its_dialogue_alone, claim_of_a_dead_node_runs_out,
                    due_webhooks_of_a_busy_tenant_are_passed_over, disabled_webhook_keeps_its_messages, messages_of_a_disabled_tenant_wait,
                    attempts_are_listed_and_messages_replayed, tests_and_budgets_have_queues_of_their_own,
                    events_of_a_world_are_told, old_messages_and_attempts_are_pruned;
                index: keyword_search_returns_only_permitted_facts, facts_are_reembedded_in_their_own_words, outbox_names_every_changed_fact, index_points_exist_only_for_valid_facts,
                    index_points_are_paged_by_id, knower_gets_only_permitted_points, similar_facts_are_those_of_a_complete_index,
                    vectors_of_another_embedder_are_not_read, facts_are_reembedded;
                backlog: queues_report_length_and_age, ledger_measures_its_waits_and_transactions,
                    grown_tables_are_counted_beside_writers;
                durability: acknowledged_writes_survive_reopening, failed_write_does_not_fail_its_batch_neighbours,
                    write_completes_though_its_caller_is_dropped, closed_ledger_reports_itself_closed;
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
