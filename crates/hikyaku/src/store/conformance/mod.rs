//! What every store must do: each promise of [`Store`](super::Store) is a case here, and a store passes by naming itself:
//!
//! ```ignore
//! async fn make() -> SharedStore { … }      // a new, empty store; anything that dereferences to a `Store` will do
//! crate::store::conformance::conformance_suite!(make);
//! ```
//!
//! A new promise begins as a case here. The last test, [`model`], compares random operations with the memory store.

pub(super) mod fixture;

pub(crate) mod claim;
pub(crate) mod duties;
pub(crate) mod finish;
pub(crate) mod held;
pub(crate) mod inbox;
pub(crate) mod interventions;
pub(crate) mod lanes;
pub(crate) mod model;
pub(crate) mod notices;
pub(crate) mod outages;
pub(crate) mod publish;
pub(crate) mod read;
pub(crate) mod reconcile;
pub(crate) mod recovery;
pub(crate) mod retention;
pub(crate) mod search;
pub(crate) mod search_model;
pub(crate) mod settings;
pub(crate) mod takeover;
pub(crate) mod tokens;
pub(crate) mod webhooks;

/// Makes one named test of every case, and the comparison with the model, for the store that `$make` makes; `cases of`
/// leaves out the comparison.
macro_rules! conformance_suite {
    (cases of $make:path) => {
        $crate::store::conformance::conformance_suite! { @ $make;
            publish:
                r9_an_event_reads_back_byte_for_byte,
                r12_s17_events_fan_out_to_active_subscribers_of_their_organization,
                r12_what_happens_while_a_webhook_is_off_never_comes_later,
                case5_the_same_publish_again_is_the_first_answer,
                case5_equal_ids_in_one_group_are_one_event,
                case5_equal_ids_at_the_same_time_are_one_event,
                a_conflict_keeps_its_whole_batch_out_and_nothing_else,
                a_batch_that_is_partly_known_stores_the_rest,
                s17_one_id_in_two_organizations_is_two_events,
                room_leases_so_many_first_attempts_in_the_commit,
                ids_of_any_allowed_form_are_kept_as_given,
                an_empty_group_has_no_answers;
            claim:
                a_claim_takes_what_is_due_with_all_that_an_attempt_needs,
                a_lease_keeps_everyone_else_out_until_it_ends,
                case14_a_webhook_gets_no_more_than_its_free_slots,
                of_one_webhook_what_was_due_first_comes_first,
                case14_a_claim_that_reached_its_limit_goes_on_after_it,
                next_due_is_the_earliest_that_is_not_due_yet,
                case24_nothing_can_be_claimed_that_is_not_committed,
                case6_two_claims_at_once_share_nothing,
                r14_the_waiting_retries_of_a_webhook_that_is_off_go_on,
                a_retry_goes_to_the_present_url,
                s17_deliveries_with_equal_ids_in_two_organizations_are_apart;
            takeover:
                case22_a_takeover_interrupts_and_the_late_finish_changes_only_the_log,
                case22_a_late_finish_before_the_takeover_ends_is_the_line_that_stays,
                r2_a_late_success_makes_what_was_given_up_delivered,
                r2_a_run_with_a_late_success_never_ends_as_exhausted,
                a_second_takeover_is_still_of_the_first_start,
                a_lease_that_ended_is_held_until_somebody_takes_it,
                a_publishers_lease_is_taken_over_like_any_other;
            finish:
                r2_a_success_ends_the_delivery,
                r8_a_retry_is_due_when_it_was_decided_and_not_before,
                r10_r11_exhaustion_switches_the_webhook_off_once,
                r17_exhaustion_by_our_fault_switches_nothing_off,
                a_webhook_that_is_off_keeps_the_older_reason,
                r14_a_late_success_switches_nothing_on,
                a_finish_without_the_lease_changes_nothing,
                a_finish_of_an_event_that_was_published_anew_leaves_no_trace,
                the_same_finish_again_leaves_one_line,
                s17_a_finish_of_another_organization_touches_nothing,
                deleting_a_webhook_cancels_what_waits,
                a_group_applies_its_parts_in_order,
                case4_case19_every_outcome_error_and_response_is_kept_as_it_was;
            notices:
                r10_a_switch_off_is_told_once_whoever_raced_for_it,
                r10_only_what_happened_is_told,
                switching_a_webhook_is_told_if_it_changes_anything;
            webhooks:
                a_webhook_is_listed_as_it_was_created,
                a_change_changes_what_it_names_and_nothing_else,
                pausing_keeps_the_older_reason_and_switching_on_clears_it,
                s17_webhooks_of_another_organization_are_out_of_reach,
                a_webhook_with_a_long_queue_is_removed_in_steps_and_nothing_of_it_is_sent;
            settings:
                settings_are_kept_as_they_were_given,
                a_setting_changes_and_leaves_the_others,
                r11_so_many_exhausted_events_in_a_row_switch_off,
                r11_never_means_never,
                r17_what_we_spoiled_does_not_count,
                s15_a_rotation_keeps_two_secrets_for_its_overlap,
                s15_a_secret_is_forgotten_when_its_overlap_has_ended,
                t8_a_retry_knows_when_its_first_attempt_began_while_there_are_two_secrets,
                a_claim_keeps_to_a_webhooks_own_cap_and_rate,
                case14_where_slots_are_scarce_no_webhooks_own_cap_is_more_than_the_others,
                r4_a_lease_outlasts_the_webhooks_own_timeout;
            read:
                the_log_is_newest_first_and_a_cursor_stays_right,
                lines_of_the_same_instant_are_paged_once_each,
                s17_a_log_holds_one_webhook_of_one_organization,
                s17_an_event_of_another_organization_does_not_exist,
                an_events_deliveries_are_in_order_of_their_webhooks,
                the_backlog_counts_what_waits,
                a_ping_changes_nothing;
            search:
                pages_stay_right_while_deliveries_end_and_events_are_added,
                a_cancelled_delivery_keeps_its_place,
                s17_deliveries_of_another_organization_are_not_found;
            duties:
                a_duty_has_one_holder_until_its_lease_ends,
                a_duty_that_was_given_up_is_free_at_once;
            outages:
                the_last_sign_of_life_is_the_last_written,
                outages_are_listed_newest_first,
                an_outage_that_began_at_the_same_time_is_replaced;
            reconcile:
                t4_how_far_a_reconciliation_came_is_kept_with_its_reports,
                s17_reconciliations_of_another_organization_do_not_exist,
                t5_a_key_is_known_by_its_rows_or_by_its_effect,
                rows_are_listed_by_their_own_time;
            retention:
                old_events_go_with_all_that_is_theirs,
                an_event_of_which_anything_waits_is_kept_whole,
                what_is_held_is_kept_and_what_was_missed_goes,
                a_step_touches_so_many_rows_and_the_next_goes_on,
                the_id_of_a_dropped_event_is_free_again,
                c7_an_id_is_known_until_its_row_is_dropped,
                c7_t5_an_id_is_known_longer_than_its_row_where_it_should_be,
                t5_versions_are_dropped_by_the_time_of_their_effect_in_steps,
                c4_the_version_of_a_key_with_work_left_is_kept,
                a_row_with_work_left_is_kept,
                c4_what_took_effect_is_remembered_when_its_row_is_gone,
                rows_are_dropped_in_steps_too;
            held:
                what_is_held_is_released_when_the_webhook_is_switched_on,
                what_a_cancelled_release_left_is_released_by_switching_on_once_more,
                a_held_event_can_be_resent_before_its_release,
                deleting_a_webhook_cancels_what_is_held_and_forgets_what_it_missed;
            recovery:
                case23_a_delivered_event_is_resent_with_the_same_id_and_bytes,
                r13_a_resend_has_the_whole_schedule_before_it,
                r13_a_delivery_that_has_not_ended_cannot_be_resent,
                r13_any_event_can_be_resent_to_any_webhook_even_one_that_is_off,
                case22_a_late_finish_of_an_older_run_changes_nothing_of_the_present_one,
                r12_what_was_missed_or_exhausted_is_listed_oldest_first_with_counts,
                r12_what_a_run_has_delivered_is_not_missed_after_a_failed_resend,
                r12_an_event_tells_who_missed_it_and_why,
                a_recovery_makes_its_events_due_oldest_first_and_a_few_at_a_time,
                a_recovery_takes_each_event_once_however_often_it_fails,
                a_recovery_brings_only_what_it_was_asked_for,
                a_recovery_is_refused_where_it_could_not_run,
                a_recovery_rests_while_its_webhook_is_off,
                recoveries_take_turns_where_there_are_many,
                t8_a_new_run_is_signed_by_its_own_first_attempt;
            inbox:
                c13_a_body_is_kept_byte_for_byte,
                c6_an_id_is_recorded_once,
                c9_an_id_is_recorded_once_over_all_sources_of_a_provider,
                case20_a_row_without_routes_is_parked,
                the_list_shows_what_was_recorded,
                the_list_is_filtered_and_a_cursor_stays_right,
                a_search_that_may_look_at_little_goes_on_where_it_came_to,
                s17_rows_of_another_organization_do_not_exist;
            lanes:
                c4_the_rows_of_a_lane_come_in_the_order_of_their_versions,
                c3_only_the_last_of_a_lanes_rows_may_come_with_its_body,
                a_key_is_worked_on_once_at_a_time_and_other_keys_beside_it,
                a_route_gets_no_more_than_its_free_slots,
                what_a_finish_leaves_is_due_at_once,
                a_retry_makes_its_whole_lane_wait,
                c15_an_effect_left_without_an_end_is_told_and_counted,
                c4_what_took_effect_is_remembered_and_never_goes_back,
                a_row_stands_as_all_of_its_effects_do,
                case22_a_finish_of_a_lost_lane_changes_nothing,
                a_lane_that_ended_never_gives_out_an_old_token,
                lanes_next_due_is_the_earliest_that_is_not_due_yet,
                s17_lanes_with_equal_keys_in_two_organizations_are_apart,
                the_backlog_counts_effects,
                the_backlog_counts_the_lanes_of_every_route;
            interventions:
                case21_a_replayed_row_begins_anew_whatever_it_ended_as,
                a_replay_is_of_the_routes_that_were_named,
                a_replay_into_a_leased_lane_waits_for_its_turn,
                a_replay_into_a_lane_that_backs_off_keeps_its_order,
                t6_a_parked_row_is_released_to_the_routes_of_today,
                a_discard_ends_what_is_dead_or_waits_and_nothing_else,
                a_discard_waits_for_whoever_may_be_making_it_take_effect,
                what_waits_behind_the_rows_that_were_taken_can_be_discarded,
                what_came_since_and_is_older_than_the_rows_taken_can_be_discarded,
                case22_a_discard_takes_over_a_lease_that_has_ended,
                a_discard_of_what_failed_frees_what_waits_behind_it,
                t2_a_quarantined_row_is_kept_with_its_headers_and_has_no_effect,
                t2_the_quarantine_of_a_source_is_bounded_in_rows_and_bytes,
                t2_an_admitted_row_is_stored_under_its_own_id_once,
                a_batch_of_interventions_has_an_answer_each,
                a_row_that_was_given_another_beginning_ages_from_it;
            tokens:
                s16_a_token_is_found_by_its_hash_until_it_is_revoked,
                an_id_and_a_hash_are_taken_once,
                a_revocation_keeps_its_first_time,
                s17_tokens_of_another_organization_are_out_of_reach,
                tokens_are_listed_newest_first_page_by_page,
                a_store_says_whether_a_token_is_valid_at_all;
        }
    };
    ($make:path) => {
        $crate::store::conformance::conformance_suite! { cases of $make }

        #[test]
        fn random_searches_find_what_looking_at_everything_finds() {
            $crate::store::conformance::search_model::check(async |case| {
                let store = $make().await;
                $crate::store::conformance::search_model::compare(&*store, case).await
            });
        }

        #[test]
        fn random_operations_are_answered_as_by_the_model() {
            use $crate::store::conformance::model;
            model::check(model::CASES, async |operations| {
                let store = $make().await;
                model::compare(&*store, operations).await
            });
        }
    };
    (@ $make:path; $($topic:ident: $($case:ident),+;)+) => {
        $($(
            #[tokio::test]
            async fn $case() {
                let store = $make().await;
                $crate::store::conformance::$topic::$case(&*store).await;
            }
        )+)+
    };
}
pub(crate) use conformance_suite;
