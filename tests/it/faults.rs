//! Faults that agents in the field had, each with the tests that keep this one immune. A test that is renamed or removed is missed here.

use std::path::Path;

use honeycomb_tests::host::workspace;

/// What went wrong elsewhere, and the tests.
const FAULTS: &[(&str, &[&str])] = &[
    // Pieces of tool calls.
    ("a call's index is missing or null", &["a_missing_or_null_index_continues_the_call"]),
    (
        "a missing index, read as 0, merges two calls",
        &["a_missing_index_does_not_merge_two_calls", "one_index_for_all_calls_does_not_merge_them"],
    ),
    ("arguments stream before the name", &["arguments_before_the_name_wait_for_it"]),
    ("an id is null, empty or absent", &["a_missing_empty_or_null_id_does_not_drop_the_call"]),
    ("id and name come first, then arguments alone", &["a_missing_or_null_index_continues_the_call"]),
    (
        "the name is sent again with each piece, or comes in pieces",
        &["a_name_sent_again_with_every_piece_counts_once", "a_name_in_pieces_is_put_together"],
    ),
    ("the type is sent again with each piece", &["a_name_sent_again_with_every_piece_counts_once"]),
    ("arguments are null, absent or empty", &["null_absent_and_empty_arguments_are_an_empty_object"]),
    ("arguments are an object and not a text", &["arguments_that_are_an_object_are_taken_as_one"]),
    (
        "arguments are JSON and no object",
        &[
            "arguments_that_are_no_object_are_refused_where_arguments_are_checked",
            "three_turns_without_a_usable_call_end_the_run",
        ],
    ),
    ("one id stands for two calls", &["two_calls_with_one_id_both_stand", "two_calls_with_one_id_both_run"]),
    ("two calls of one tool become one", &["two_calls_of_one_tool_both_stand"]),
    (
        "a cumulative stream is read as pieces",
        &["a_call_repeated_at_its_end_stands_once", "a_repeated_block_start_does_not_repeat_the_call"],
    ),
    // How turns end.
    (
        "the finish reason hides calls",
        &["a_finish_reason_that_hides_calls_does_not_hide_them", "calls_run_whatever_the_finish_reason_says"],
    ),
    (
        "a turn ends for calls and has none, for ever",
        &["a_finish_for_calls_without_calls_is_an_empty_turn", "a_model_that_waits_for_tools_it_did_not_call_does_not_loop"],
    ),
    (
        "an empty list of calls is taken for a call",
        &["an_empty_list_of_calls_is_not_a_call", "an_answer_with_an_empty_list_of_calls_is_an_answer"],
    ),
    ("calls of a refused or filtered turn run", &["calls_of_a_refused_or_filtered_turn_do_not_run"]),
    (
        "calls of a turn that was cut off run",
        &["calls_of_a_turn_that_was_cut_off_do_not_run", "an_answer_that_was_cut_off_is_not_passed_off_as_whole"],
    ),
    ("an empty block is sent again for ever", &["an_empty_turn_leaves_no_empty_block_behind", "blank_text_is_left_out"]),
    ("a history ends on the model", &["a_history_never_ends_on_the_model_nor_begins_with_it"]),
    (
        "nudging loops by itself",
        &["a_model_that_waits_for_tools_it_did_not_call_does_not_loop", "a_model_that_speaks_after_a_nudge_is_nudged_anew_later"],
    ),
    // Streams and HTTP.
    ("a character is split between chunks", &["characters_split_between_chunks_are_whole"]),
    (
        "heartbeats and control-only events are read as data",
        &["heartbeats_and_control_only_events_say_nothing", "decodes_every_form_of_line_end_comment_and_field"],
    ),
    ("an empty stream passes for an empty answer", &["a_stream_without_data_is_an_error_and_not_an_empty_answer"]),
    (
        "an error within status 200 passes for an end",
        &["an_error_inside_a_stream_is_not_an_end", "an_error_with_status_200_and_any_content_type_is_an_error"],
    ),
    ("a connection that ends early passes for an end", &["an_end_before_the_finish_is_incomplete_wherever_it_comes"]),
    ("a chunk without choices is a panic", &["a_usage_chunk_without_choices_is_counted_wherever_it_stands"]),
    ("cumulative usage is added up", &["cumulative_usage_is_set_and_not_added_up"]),
    (
        "an open stream goes silent",
        &["an_open_stream_that_goes_silent_times_out_even_when_heartbeats_flow", "empty_deltas_do_not_keep_a_dead_stream_alive"],
    ),
    (
        "a stall is never retried, or its output repeated",
        &["a_stall_before_any_event_is_retried_without_a_word", "output_already_shown_is_taken_back_and_never_repeated_silently"],
    ),
    ("`Retry-After` is ignored, or taken for a ceiling", &["retry_after_is_a_floor_in_every_form_and_zero_is_now"]),
    ("an error without a body passes for an answer", &["an_error_with_an_empty_body_is_not_an_empty_answer"]),
    (
        "an overflow and a rate limit are mixed up",
        &[
            "a_window_that_is_too_small_is_told_from_a_rate_limit",
            "a_provider_with_a_smaller_window_is_obeyed_once_then_the_run_ends",
        ],
    ),
    ("a byte order mark is a panic", &["a_byte_order_mark_and_every_line_end_are_fine"]),
    // Histories.
    (
        "a cut parts a call from its result",
        &["a_cut_between_call_and_result_leaves_no_orphan", "max_history_cuts_between_turns_and_keeps_the_task"],
    ),
    (
        "an interrupted call has no result",
        &["a_call_that_a_crash_left_open_is_reported_as_interrupted", "an_interrupted_session_is_usable"],
    ),
    ("an interrupted call is reported as refused", &["an_interrupted_call_is_not_reported_as_refused"]),
    (
        "a late result counts, or its call runs again",
        &["cancelling_gives_each_call_exactly_one_outcome", "after_a_crash_only_idempotent_calls_run_again"],
    ),
    ("results stand apart from each other", &["results_stand_right_behind_their_calls_in_one_message"]),
    (
        "broken arguments break every later request",
        &["malformed_arguments_do_not_poison_later_requests", "broken_arguments_do_not_break_every_later_request"],
    ),
    (
        "half a character or NUL bricks a session",
        &["nul_is_dropped_and_text_that_spells_it_is_not", "any_history_and_any_cut_is_accepted_on_the_wire"],
    ),
    (
        "summaries nest and grow",
        &[
            "when_stubs_do_not_do_a_summary_is_asked_for_and_replaces_the_earlier",
            "a_summariser_that_fails_three_times_is_not_asked_again",
        ],
    ),
    ("a summariser hangs", &["a_summariser_that_hangs_is_given_up_and_after_three_times_not_asked_again"]),
    (
        "reasoning goes back in part",
        &[
            "reasoning_is_replayed_byte_for_byte_or_not_at_all",
            "signed_thinking_goes_back_byte_for_byte_or_not_at_all",
            "reasoning_content_goes_back_only_where_the_quirk_says",
        ],
    ),
    // Tools.
    (
        "an unknown tool ends the run, or has an illegal name",
        &["an_unknown_tool_is_answered_with_the_list_of_tools", "an_invented_name_becomes_legal"],
    ),
    (
        "polling is taken for a loop",
        &["polling_until_something_changes_is_not_a_loop", "the_same_call_with_the_same_result_ends_after_a_warning"],
    ),
    (
        "what a run started goes on after its end",
        &["a_parent_that_stops_stops_the_tool_too", "a_handle_that_is_dropped_stops_its_run"],
    ),
    ("shortened names collide, or depend on the order", &["names_are_legal_and_stable", "lossy_names_stay_apart"]),
    (
        "the parent stops and its workers run on",
        &["cancelling_the_parent_cancels_all_and_keeps_what_arrived", "dropping_the_parent_leaves_no_worker_behind"],
    ),
    ("a shared budget leaves workers nothing to report with", &["a_shared_budget_leaves_enough_to_report_back"]),
    (
        "a store that is written by several is locked, or loses messages",
        &[
            "many_writers_of_one_file_lose_nothing_and_leave_no_long_log",
            "a_task_that_is_killed_goes_on_and_nothing_happens_twice",
        ],
    ),
    ("a schema without properties is refused", &["a_schema_without_properties_gets_them", "schemas_without_properties_get_some"]),
];

#[test]
fn every_known_fault_has_its_test() {
    let mut sources = String::new();
    for directory in ["host/src", "tests/it"] {
        read(&workspace().join(directory), &mut sources);
    }
    let missing: Vec<&str> = FAULTS
        .iter()
        .flat_map(|(_, tests)| tests.iter().copied())
        .filter(|test| !sources.contains(&format!("fn {test}(")))
        .collect();
    assert!(missing.is_empty(), "there is no test of this name: {missing:?}");
    assert!(FAULTS.iter().all(|(fault, tests)| !fault.is_empty() && !tests.is_empty()));
}

fn read(directory: &Path, sources: &mut String) {
    for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            read(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push_str(&std::fs::read_to_string(&path).expect("UTF-8"));
        }
    }
}
