"""Every bound in time or number that the README and docs/ promise: the sentence, the code that holds the number, and the test.

`test_promised_bounds.py` checks that each sentence still stands in its document, that the number in it is the one that the code
has, and that the named test exists. It also finds figures in the documents that are neither here nor in `other_figures.py`. So
a bound changes in the document, in the code and in the test together.

A test in simulated time, or of a limit, asserts the number itself. A test with real processes asserts `allowed(NAME)`: the
number times a factor that is stated here. Must not know: what a test does. Imports nothing of the product, so that any test can
use it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

#: Tests run beside others on two cores that they share with other work: a step that waits for its turn there was measured to
#: take up to three times as long as on a quiet machine.
LOAD_FACTOR: Final = 3.0
#: For bounds of about a second, to which a single wait for the processor adds as much again.
SHORT_FACTOR: Final = 5.0


class Bound(NamedTuple):
    """A promised number."""

    #: Words of the document, without its line breaks; the number is among them, in digits or in words.
    says: str
    number: float
    #: Where the code has the number, MODULE:EXPRESSION, in the document's unit. "": nowhere, it follows from several.
    held_by: str
    #: The test that asserts it, FILE::FUNCTION, below tests/.
    test: str
    #: The name by which a test of real processes asks for what it allows.
    name: str = ""
    factor: float = 1.0


def option(name: str, unit: float = 1.0) -> str:
    """Where the default of an option is."""
    return f"topology_api.options:OPTIONS[{name!r}].default / {unit}"


def allowed(name: str) -> float:
    """The number that a test of real processes allows: what is promised, times the stated factor."""
    (found,) = (bound for bounds in BOUNDS.values() for bound in bounds if bound.name == name)
    return found.number * found.factor


OUTAGES: Final = "worker/test_outages.py"
MEMORY: Final = "worker/test_memory_limit.py"
STALLED: Final = "nimbus_http/test_stalled_clients.py"
TRIALS: Final = "nimbus/test_trials.py"
COMING_UP: Final = "squall_cli/test_submit_coming_up.py"
ENDED: Final = "nimbus/test_ended_versions.py"
KEPT: Final = "supervisor/test_kept_logs.py"
CHANGES: Final = "nimbus_http/test_recorded_changes.py"
WRITER: Final = "squall_io/test_sink_writer.py"
YIELD: Final = "worker/test_calls_that_yield.py"
PATIENCE: Final = "squall.http.connections:PATIENCE[Awaited.{}].secs"

# fmt: off
README: Final = (
    Bound("By default `fail` comes after 3 failures that count", 3, "topology_api.values:Replay().max_attempts",
          "local_cluster/test_stores_away.py::test_a_poison_tuple_is_given_up_after_three_attempts_and_costs_no_other"),
    Bound("if at least 3 tuples fail", 3, "worker.tracking.outages:DOWN_TUPLES",
          f"{OUTAGES}::test_two_tuples_are_too_few_for_a_verdict"),
    Bound("for at least 5 s and none succeeds, the task is down", 5, "worker.tracking.outages:DOWN_SECS",
          f"{OUTAGES}::test_three_tuples_over_five_seconds_without_a_success_show_that_a_task_is_down"),
    Bound("a dead letter, which is kept for 7 days", 7, option("topology.dead.letters.days"),
          "supervisor/test_host_letters.py::test_old_letters_expire_and_the_others_are_counted"),
    Bound("A batch has at most 1 GiB", 1, "squall.transport.wire:MOST_BYTES / 2**30",
          "squall/transport/test_wire.py::test_a_batch_that_is_too_large_names_its_largest_value"),
    Bound("longer than the worker's lease (10 s in a local cluster)", 10, "local_cluster.process_engine:LEASE_SECS",
          "local_cluster/test_process_orphans.py::test_workers_of_a_killed_script_end_with_their_lease"),
    Bound("A topology has at most 65,535 tasks", 65_535, "topology_api.validation:MAX_TASKS",
          "topology_api/test_validation.py::test_a_topology_has_at_most_65535_tasks_in_total"),
    Bound("a spout task at most 8,388,608 open trees", 8_388_608, "worker.tracking.ids:MAX_SLOTS",
          "worker/test_tracker.py::test_a_full_table_is_an_error_that_names_the_option"),
    Bound("is on by default: 1000 trees per spout task", 1000, option("topology.max.spout.pending"),
          "local_cluster/test_flow_control.py::test_open_trees_stay_below_max_spout_pending_plus_one_call"),
)

CLUSTER: Final = (
    Bound("it has at most 120 characters", 120, "nimbus.http.error_labels:MOST_LABEL",
          "nimbus/test_error_labels.py::test_a_label_is_bounded"),
    Bound("go on for `supervisor.worker.lease.secs` (20 s) and then end", 20, option("supervisor.worker.lease.secs"),
          "faults/test_frozen_workers.py::test_a_worker_without_its_supervisor_for_longer_than_the_lease_exits_by_itself"),
    Bound("Workers run without their supervisor for `supervisor.worker.lease.secs` (20 s), and the new process takes them over;"
          " so do not leave a supervisor stopped for longer than these 20 s", 20, option("supervisor.worker.lease.secs"),
          "supervisor/test_restarted_supervisor.py::test_a_lease_continues_from_where_it_was"),
    Bound("share of the last ten seconds that a task was in calls", 10, "worker.tasks.work_time:SPAN",
          "worker/test_work_time.py::test_the_busy_share_is_that_of_the_last_seconds"),
    Bound("for each worker up to 40 MB of `worker.log` (10 MB and three", 40,
          "worker.process.logs:MOST_BYTES * (OLDER_FILES + 1) / 1e6",
          "worker/test_daemon_logs.py::test_a_full_log_is_renamed_and_the_worker_goes_on"),
    Bound("`nimbus.package.unpacked.limit.bytes` (1 GiB)", 1, option("nimbus.package.unpacked.limit.bytes", 2**30),
          "squall/test_archives.py::test_an_archive_that_is_too_large_in_total_is_refused"),
    Bound("those of the 20 versions that ended last stay", 20, "supervisor.kept_logs:MOST_TOPOLOGIES",
          f"{KEPT}::test_the_logs_of_the_topologies_that_ended_last_are_kept"),
    Bound("`supervisor.logs.keep.days` (7). Dead letters", 7, option("supervisor.logs.keep.days"),
          f"{KEPT}::test_kept_logs_are_removed_after_their_days"),
    Bound("Dead letters, at most `topology.dead.letters.mb` (100)", 100, option("topology.dead.letters.mb"),
          "worker/test_letter_files.py::test_as_many_are_kept_as_fit"),
    Bound("their earlier versions (`nimbus.versions.keep`, 5)", 5, option("nimbus.versions.keep"),
          "nimbus/test_earlier_versions.py::test_those_that_ended_last_are_kept"),
    Bound("at most `nimbus.package.limit.bytes` (256 MiB) each", 256, option("nimbus.package.limit.bytes", 2**20),
          "nimbus_http/test_files_over_http.py::test_a_file_over_the_limit_is_refused_with_the_limit"),
    Bound("usually some kilobytes, at most 4 MB each", 4, "nimbus.submission.parse:PACKAGE_LIMIT / 2**20",
          "nimbus_http/test_submit_over_http.py::test_pickles_over_the_limit_are_refused_and_the_largest_is_named"),
    Bound("At 80 % the worker's log warns", 80, "worker.process.memory_limit:WARN * 100",
          f"{MEMORY}::test_it_warns_once_until_the_memory_has_fallen"),
    Bound("at 125 %", 125, "worker.process.memory_limit:MUCH * 100",
          f"{MEMORY}::test_a_process_that_grows_fast_is_not_drained"),
    Bound("or if it has not drained after 45 s, it ends at once", 45, "worker.process.memory_limit:DRAIN_SECS",
          f"{MEMORY}::test_it_drains_at_the_limit_and_ends_if_that_does_not_help"),
    Bound("The last 5 versions of a topology that were replaced", 5, option("nimbus.versions.keep"),
          "nimbus/test_earlier_versions.py::test_those_that_ended_last_are_kept"),
    Bound("until no one has requested them for two hours", 2, "nimbus.files.housekeeping:UNUSED_SECS / 3600",
          "nimbus/test_housekeeping.py::test_an_old_unused_file_is_removed_and_the_others_stay"),
    Bound("at once, or within 5 s if ZooKeeper does not answer", 5, "supervisor.store_view:PATIENCE",
          "supervisor/test_thawed_supervisors.py::test_a_store_that_does_not_answer_delays_a_start_by_some_seconds_at_most"),
    Bound("Nimbus gives it up after `nimbus.supervisor.timeout.secs`, and its tasks move", 30,
          option("nimbus.supervisor.timeout.secs"),
          "nimbus/test_supervisors_that_fall_silent.py::test_a_supervisor_that_was_heard_is_never_given_up_and_a_silent_one_is"),
    Bound("`squall.zookeeper.session.timeout.secs` (10 s) and", 10, option("squall.zookeeper.session.timeout.secs"),
          "squall/cluster/test_leadership.py::test_the_end_of_the_leaders_session_wakes_the_standby"),
    Bound("up to 3 s more, since ZooKeeper counts in ticks", 3, "",
          "cluster_faults/test_nimbus_faults.py::test_the_rival_leads_and_no_tuple_fails", "lead after a session", LOAD_FACTOR),
    Bound("the command waits 5 s for that Nimbus, once", 5, "squall_cli.cluster.cluster_client:ANSWER_SECS",
          "squall_cli/test_frozen_nimbus.py::"
          "test_every_command_is_executed_by_the_other_nimbus_and_waits_for_the_frozen_one_once"),
    Bound('`submit` answers "unavailable" within 5 s', 5, "",
          "cluster_faults/test_zookeeper_away.py::test_tuples_and_epochs_flow_while_zookeeper_is_away_and_commands_work_when_it_is_back",
          "unavailable", LOAD_FACTOR),
    Bound("5 s after ZooKeeper is back, everything is as before", 5, "",
          "cluster_faults/test_zookeeper_away.py::test_tuples_and_epochs_flow_while_zookeeper_is_away_and_commands_work_when_it_is_back",
          "back", LOAD_FACTOR),
    Bound("a change is seen within 10 s, and acted on once", 10, "squall.cluster.zookeeper.store:MEMORY_SECS + _IDLE_SECS",
          "cluster_faults/test_lost_notices.py::test_changes_are_seen_when_notifications_are_lost_or_doubled",
          "change seen", LOAD_FACTOR),
    Bound("30 s after all Nimbuses have answered that they lack the file", 30, "nimbus.files.housekeeping:PATIENCE_SECS",
          "nimbus/test_lacking.py::test_a_file_that_all_others_lack_is_waited_for_a_while"),
    Bound("(2 min if some do not answer)", 2, "nimbus.files.housekeeping:UNSURE_SECS / 60",
          "nimbus/test_lacking.py::test_a_nimbus_that_does_not_answer_is_waited_for_longer_and_named"),
    Bound("after three failed starts in a row", 3, "supervisor.host_trouble:FAILURES",
          "supervisor/test_host_trouble.py::test_a_host_is_marked_after_three_failed_starts_in_a_row"),
    Bound("(within some 3 s)", 3, "supervisor.plan:sum(min(LONGEST_DELAY, FIRST_DELAY * 2**n) for n in range(2))",
          "supervisor/test_plan.py::test_the_first_start_is_immediate_and_then_the_rest_doubles_up_to_a_minute"),
    Bound("after longer outages up to 60 s", 60, "worker.tasks.probing:LONGEST_PAUSE",
          f"{OUTAGES}::test_probes_of_a_task_that_is_down_come_after_pauses_that_double_up_to_a_minute"),
    Bound("It is checked after 2 s to 60 s", 60, "supervisor.host_trouble:LONGEST_PAUSE",
          "supervisor/test_host_trouble.py::test_a_marked_host_is_checked_with_growing_pauses_until_it_can_start_workers"),
)

RELIABILITY: Final = (
    Bound("nothing keeps the tree alive during `topology.message.timeout.secs` (30)", 30,
          option("topology.message.timeout.secs"),
          "worker/test_tracker.py::test_a_tree_fails_between_1_and_1_1_timeouts_after_its_last_keep_alive"),
    Bound("at least 3 tuples, of all its spout tasks together, for at least 5 s", 5, "worker.tracking.outages:DOWN_SECS",
          f"{OUTAGES}::test_three_tuples_over_five_seconds_without_a_success_show_that_a_task_is_down"),
    Bound("at least 3 tuples in a row, for half a second to 5 s", 3, "worker.tracking.outages:DOWN_TUPLES",
          f"{OUTAGES}::test_a_burst_charges_no_tuple_and_is_no_verdict"),
    Bound("For a minute afterwards, one tuple that fails for half a second", 1, "worker.tracking.outages:UNSTEADY_SECS / 60",
          f"{OUTAGES}::test_a_burst_charges_no_tuple_and_is_no_verdict"),
    Bound("It tries one of them after 1 s, then after pauses that double up to 60 s", 60, "worker.tasks.probing:LONGEST_PAUSE",
          f"{OUTAGES}::test_probes_of_a_task_that_is_down_come_after_pauses_that_double_up_to_a_minute"),
    Bound("`topology.outage.give.up.secs` (an hour", 1, option("topology.outage.give.up.secs", 3600),
          f"{OUTAGES}::test_without_a_verdict_a_tuple_is_given_up_after_its_time"),
    Bound("after the second one the tuple is given up", 2, "worker.tracking.outages:MOST_DEATHS",
          f"{OUTAGES}::test_two_deaths_in_a_call_with_a_tuple_are_enough_and_neighbours_are_not_charged"),
    Bound("there for `topology.dead.letters.days` (7), even if", 7, option("topology.dead.letters.days"),
          "supervisor/test_host_letters.py::test_old_letters_expire_and_the_others_are_counted"),
    Bound("`topology.dead.letters.mb` (100) on each host", 100, option("topology.dead.letters.mb"),
          "worker/test_letter_files.py::test_as_many_are_kept_as_fit"),
    Bound("or that take more than 32 MB", 32, "squall.dead_letters.contents:MOST_BYTES / 2**20",
          "squall/test_dead_letters.py::test_what_cannot_be_encoded_is_kept_as_text_with_the_reason"),
    Bound("dead letters are in memory, up to 10,000 of a topology", 10_000, "worker.tracking.dead_letters:MOST_IN_MEMORY",
          "local_cluster/test_given_up_tuples.py::test_in_one_process_the_first_letters_are_kept_and_all_are_counted"),
    Bound("late, by at most a tenth of that time", 0.1, "worker.tracking.timing_wheel:2 / TICKS_PER_TIMEOUT",
          "worker/test_timing_wheel.py::test_a_slot_is_due_between_1_and_1_1_timeouts_after_its_last_stamp"),
    Bound("longer than `topology.bolt.hang.secs` (60) is considered hung", 60, option("topology.bolt.hang.secs"),
          "worker/test_daemon_heartbeat.py::test_a_bolt_that_hangs_ends_the_process_with_all_stacks"),
)

WORKERS: Final = (
    Bound("Errors of any worker appear within a second", 1, "",
          "squall_cli/test_run_workers_terminal.py::test_an_error_of_a_worker_without_the_spout_is_shown_soon_and_the_run_goes_on",
          "error shown", SHORT_FACTOR),
    Bound("Rotated at 10 MB; three older files are kept", 10, "worker.process.logs:MOST_BYTES / 1e6",
          "worker/test_daemon_logs.py::test_a_full_log_is_renamed_and_the_worker_goes_on"),
    Bound("at once, then after 1, 2, 4 … 60 s if it keeps dying", 60, "supervisor.plan:LONGEST_DELAY",
          "supervisor/test_plan.py::test_the_first_start_is_immediate_and_then_the_rest_doubles_up_to_a_minute"),
    Bound("its supervisor, after `topology.worker.timeout.secs` | the worker is killed", 30,
          option("topology.worker.timeout.secs"),
          "supervisor/test_plan.py::test_a_worker_without_heartbeats_is_killed_repeatedly"),
    Bound("its supervisor, after 5 s | `squall status` names the line", 5, "supervisor.silence:SILENT_SECS",
          "squall_cli/test_stack_command.py::test_a_hung_call_and_one_that_holds_pythons_lock_are_found_in_a_cluster"),
    Bound("both workers, within 2.5 s", 2.5, "squall.transport.channels:SILENCE",
          "worker/test_lossy_links.py::test_a_silent_link_is_noticed_by_both_workers_in_time"),
    Bound("records each call for ten minutes", 10, "squall.suspects:MARK_SECS / 60",
          "worker/test_deaths_over_links.py::test_a_source_that_comes_back_to_the_tuple_after_the_marks_have_ended_is_waited_for"),
    Bound("keeps the tuples of these calls for a day", 1, "squall.suspects:KEPT_SECS / 86_400",
          "squall/test_suspects.py::test_suspects_are_forgotten_a_day_after_the_death_that_named_them"),
    Bound("logged at most once a minute", 1, "squall.transport.refusals:QUIET_SECS / 60",
          "squall/transport/test_refusals.py::"
          "test_one_peer_is_logged_once_a_minute_whatever_its_ports_and_the_next_line_has_the_number"),
    Bound("at most 512 tuples and 512 KiB, unless one tuple is larger", 512, "squall.transport.credit:frame_limits(10**6)[0]",
          "squall/transport/test_frame_limits.py::test_a_frame_of_equal_tuples_never_exceeds_the_limit_by_more_than_a_tuple"),
)

CONCEPTS: Final = (
    Bound("Every other call that takes five seconds is in", 5, "worker.process.long_calls:LONG_CALL",
          "worker/test_long_calls.py::test_a_call_without_a_tuple_is_reported_with_its_method_and_place"),
    Bound("leaves while the call is running: 50 ms later", 50, "worker.loop.threaded_tasks:VISIT_SECONDS * 1000",
          f"{YIELD}::test_tuples_leave_while_the_call_runs"),
    Bound("(a quarter of `topology.queue.size`, at most 1,024 tuples)", 1024, "",
          "worker/test_credit.py::test_a_run_ends_after_a_quarter_of_the_queue_and_at_most_1024_emissions"),
    Bound("Once a call of `next_tuple` has lasted a second", 1, "worker.tasks.yielding:LONG_SECONDS",
          f"{YIELD}::test_a_call_that_waits_gets_its_final_calls_when_it_becomes_long"),
    Bound("`ack` and `fail` every 100 ms", 100, "worker.tasks.yielding:TURN_SECONDS * 1000",
          f"{YIELD}::test_acks_and_replays_come_inside_emit_once_the_call_is_long"),
    Bound("differs by at most 1 tuple", 1, "", "worker/test_router.py::test_shuffle_counts_of_one_sender_differ_by_at_most_1"),
    Bound("differ by at most one task of each component, and by at most one task in total", 1, "",
          "nimbus/test_unequal_hosts.py::test_workers_differ_by_at_most_one_task_of_each_component_and_in_total"),
    Bound("(`topology.queue.size`, 4096 tuples)", 4096, option("topology.queue.size"),
          "local_cluster/test_flow_control.py::test_queues_before_a_slow_bolt_stay_below_their_limit"),
    Bound("searches once a second", 1, "squall_io.files.reading:POLL_SECONDS",
          "squall_io/test_file_spout.py::test_lines_are_emitted_as_they_are_completed"),
    Bound("A line above 16 MiB is left out", 16, "squall_io.lines.cutting:LONGEST / 2**20",
          "squall_io/test_spout_text_lines.py::test_a_line_that_is_too_long_is_reported_with_its_position_and_the_others_are_read"),
    Bound("tried again every 10 s", 10, "squall_io.files.reading:RETRY_SECONDS",
          "squall_io/test_file_spout.py::test_a_damaged_file_is_read_once_it_is_repaired_and_the_others_meanwhile"),
)
RUNNING: Final = (
    Bound("Squall tries the call again: at once, then after 1, 2, 4 … 60 seconds", 60, "supervisor.plan:LONGEST_DELAY",
          "supervisor/test_plan.py::test_the_first_start_is_immediate_and_then_the_rest_doubles_up_to_a_minute"),
    Bound("it is called again after 0.1 s; the delay doubles with each further error, up to 10 s", 10,
          "worker.tasks.spout_wait:LONGEST_ERROR_WAIT",
          "local_cluster/test_many_errors.py::test_a_next_tuple_that_always_raises_is_called_ever_less_often"),
    Bound("spout's last 20 different errors", 20, "squall.reports.error_reports:KEPT",
          "local_cluster/test_many_errors.py::test_many_different_errors_are_counted_exactly_and_the_latest_few_are_kept"),
)

SECURITY: Final = (
    Bound("when a TLS handshake takes longer than 10 s", 10, "squall.http.connections:HANDSHAKE_SECS",
          f"{STALLED}::test_a_tls_handshake_that_does_not_begin_is_not_waited_for"),
    Bound("a request (without its body) has not arrived within 15 s", 15, PATIENCE.format("REQUEST"),
          f"{STALLED}::test_a_request_that_trickles_in_is_not_waited_for"),
    Bound("(an *unknown* one), within 5 s", 5, PATIENCE.format("FIRST"),
          f"{STALLED}::test_a_connection_without_a_request_is_closed"),
    Bound("an idle unknown connection is kept for 5 s", 5, "squall.http.connections:UNKNOWN_KEEP_SECS",
          f"{STALLED}::test_an_idle_connection_without_credentials_is_closed_and_one_with_them_stays"),
    Bound("when, 10 s after a refusal, the rest of the refused body", 10, PATIENCE.format("REST"),
          f"{STALLED}::test_the_body_of_a_refused_request_is_not_waited_for"),
    Bound("at less than 500 bytes per second over half a minute", 500,
          "squall.http.connections:PATIENCE[Awaited.BODY].least / PATIENCE[Awaited.BODY].secs",
          f"{STALLED}::test_a_file_that_comes_too_slowly_is_not_waited_for_and_leaves_nothing"),
    Bound("when there are 4,096", 4096, "nimbus.daemon:MOST_CONNECTIONS",
          f"{STALLED}::test_connections_over_the_limit_are_closed_at_once_and_the_others_stay"),
    Bound("at most ten seconds old, since its last start", 10, "supervisor.store_view:CLOSED_SECS",
          "supervisor/test_closed_connections.py::test_a_count_is_in_the_store_a_while_later_however_fast_it_grows"),
    Bound("(on the log port of a supervisor, 128)", 128, "supervisor.log_server:MOST_CONNECTIONS",
          "supervisor/test_log_server.py::test_strangers_who_hold_connections_do_not_keep_a_nimbus_out"),
    Bound("a quarter of the places (at least 16)", 16, "squall.http.admission:_LEAST",
          "squall/test_admission.py::test_a_known_connection_is_never_closed_and_strangers_have_a_quarter"),
    Bound("`squall.http.unknown.per.address` (32)", 32, option("squall.http.unknown.per.address"),
          "squall/test_admission.py::test_the_oldest_unknown_connection_of_an_address_goes_for_a_new_one"),
    Bound("The first connection of a minute that is closed", 1, "squall.http.admission:_NOTICE_EVERY / 60",
          "squall/test_admission.py::test_closed_connections_are_logged_once_a_minute_with_their_number"),
    Bound("at least 16, at most 1,024", 1024, "squall.transport.carriers.admission:MOST",
          "worker/test_out_of_files.py::test_a_worker_outlives_strangers_who_hold_more_connections_than_it_may_open_files"),
    Bound("that has not shown the topology's key within 3 s", 3, "squall.transport.carriers.sockets:_HANDSHAKE / 1000",
          "squall/transport/test_strangers.py::test_five_hundred_silent_connections_block_no_worker_and_are_disconnected"),
    Bound("again every minute while it leads", 1, "nimbus.security.access:PAUSE_SECS / 60",
          "nimbus/test_store_access.py::test_the_walk_goes_on_a_page_at_a_time_and_begins_again_after_a_pause"),
    Bound("100 nodes at a time", 100, "squall.cluster.zookeeper.store:PAGE",
          "squall/cluster/test_zookeeper_access.py::test_a_thousand_nodes_are_checked_in_pages_with_few_requests_each"),
    Bound("50 MB: the oldest of", 50, "nimbus.security.changes:CHANGES_BYTES * (CHANGES_OLDER + 1) / 1e6",
          f"{CHANGES}::test_files_are_renamed_when_they_are_full_and_the_oldest_is_deleted"),
    Bound("or none | 10 MB;", 10, "nimbus.security.changes:REFUSED_BYTES * (REFUSED_OLDER + 1) / 1e6",
          f"{CHANGES}::test_a_flood_of_refusals_is_counted_and_pushes_no_change_out"),
    Bound("at most 10 lines a second", 10, "nimbus.security.changes:REFUSED_A_SECOND",
          f"{CHANGES}::test_a_flood_of_refusals_is_counted_and_pushes_no_change_out"),
    Bound("The first refusal of a minute is a warning", 1, "nimbus.security.changes:WARN_SECS / 60",
          f"{CHANGES}::test_a_false_token_is_recorded_and_logged"),
)

SUBMITTING: Final = (
    Bound("an archive: 256 MiB", 256, option("nimbus.package.limit.bytes", 2**20),
          "nimbus_http/test_files_over_http.py::test_a_file_over_the_limit_is_refused_with_the_limit"),
    Bound("an unpacked archive: 1 GiB, 50,000 files, 200 times", 50_000, "squall.packages.tar_members:MOST_MEMBERS",
          "squall/test_archives.py::test_an_archive_with_too_many_members_is_refused"),
    Bound("200 times the archive's size", 200, "squall.packages.tar_members:MOST_RATIO",
          "squall/test_archives.py::test_an_archive_that_expands_out_of_proportion_is_refused"),
    Bound("description and pickled components together: 4 MiB", 4, "nimbus.submission.parse:PACKAGE_LIMIT / 2**20",
          "nimbus_http/test_submit_over_http.py::test_pickles_over_the_limit_are_refused_and_the_largest_is_named"),
    Bound("requirements: 256 KiB", 256, "squall.packages.travel_rules:MOST_REQUIREMENTS_BYTES / 1024",
          "squall/test_travel_rules.py::test_text_of_the_greatest_length_and_with_a_byte_order_mark_is_accepted"),
    Bound("If no Nimbus answers for 30 seconds", 30, "squall_cli.packing.submission:PATIENCE",
          "squall_cli/test_submit_command.py::test_when_no_answer_ever_comes_the_unknown_outcome_is_reported"),
    Bound("the bolt has been down for 30 seconds with nothing acked", 30, "squall_cli.packing.coming_up:TROUBLE_SECS",
          f"{COMING_UP}::test_a_bolt_that_is_down_ends_the_wait_after_half_a_minute_without_an_ack"),
    Bound("says so after 30 seconds", 30, "squall_cli.packing.coming_up:TROUBLE_SECS",
          f"{COMING_UP}::test_a_lack_of_slots_is_reported_once_and_waiting_goes_on"),
    Bound("that does not improve for 30 seconds", 30, "squall_cli.packing.coming_up:TROUBLE_SECS",
          f"{COMING_UP}::test_workers_that_keep_dying_are_given_up_without_progress"),
    Bound("and over 10 s fewer than half of the attempts fail | it stays", 10, "nimbus.lifecycle.trial:WINDOW_SECS",
          f"{TRIALS}::test_a_version_whose_tuples_are_acked_for_ten_seconds_has_proved_that_it_runs"),
    Bound("over 10 s at least half of the attempts fail | rolled back", 10, "nimbus.lifecycle.trial:WINDOW_SECS",
          f"{TRIALS}::test_a_version_half_of_whose_attempts_fail_is_rolled_back"),
    Bound("fails three times in a row at its start with the same error | rolled back at once", 3,
          "nimbus.lifecycle.trial:SAME_ERRORS", f"{TRIALS}::test_the_third_identical_error_at_a_start_ends_the_trial_at_once"),
    Bound("do not start within `nimbus.replace.timeout.secs`", 60, option("nimbus.replace.timeout.secs"),
          "nimbus/test_replacement.py::test_a_version_that_is_not_up_in_time_is_rolled_back"),
    Bound("The last 5 versions that were replaced or rolled back are kept", 5, option("nimbus.versions.keep"),
          "nimbus/test_earlier_versions.py::test_those_that_ended_last_are_kept"),
)

COMMANDS: Final = (
    Bound(
        "If the task is in a call that runs longer than two seconds",
        2,
        "worker.process.state_answers:PATIENCE",
        "local_cluster/test_live_state.py::test_a_task_in_a_long_call_is_named_after_a_bounded_wait",
    ),
    Bound(
        "Of a list or map the first 1,000 parts are shown",
        1000,
        "worker.state.live:MOST_PARTS",
        "local_cluster/test_live_state.py::test_large_states_are_bounded_and_say_what_is_left_out",
    ),
    Bound("If a Nimbus does not answer within 5 s", 5, "squall_cli.cluster.cluster_client:ANSWER_SECS",
          "squall/test_silent_servers.py::test_a_silent_server_is_asked_last_from_then_on"),
    Bound("tries again for up to 30 s", 30, "squall_cli.cluster.waiting:TAKEOVER_SECS",
          "squall_cli/test_wait_timeouts.py::test_a_change_is_tried_again_for_as_long_as_another_nimbus_may_take_to_lead"),
    Bound("BUSY is the share of the last ten seconds", 10, "worker.tasks.work_time:SPAN",
          "worker/test_work_time.py::test_the_busy_share_is_that_of_the_last_seconds"),
    Bound("has been running, after one second", 1, "worker.loop.snapshot:SHOWN_SECONDS",
          f"{YIELD}::test_a_call_is_shown_once_it_has_run_for_a_second"),
    Bound("within 10 s after it has begun to work", 10, "",
          "squall_cli/test_sick_bolts.py::test_one_command_names_each_sick_bolt_with_its_task_in_time",
          "sick bolt named", LOAD_FACTOR),
    Bound("a call that has not returned for five seconds", 5, "worker.process.long_calls:LONG_CALL",
          "worker/test_long_calls.py::test_a_long_call_is_reported_once_with_its_place_and_tuple"),
    Bound("by tuples per second over the last five seconds", 5, "squall_cli.local.rates:WINDOW",
          "squall_cli/test_run_table.py::test_rates_cover_only_the_last_seconds"),
    Bound("The last 5 versions that were replaced or rolled back are kept", 5, option("nimbus.versions.keep"),
          "nimbus/test_earlier_versions.py::test_those_that_ended_last_are_kept"),
    Bound("the latest 20 errors of each component", 20, "squall.reports.error_reports:KEPT",
          "local_cluster/test_many_errors.py::test_many_different_errors_are_counted_exactly_and_the_latest_few_are_kept"),
    Bound("the last three versions of a name", 3, "nimbus.counters.ended:OF_A_NAME",
          f"{ENDED}::test_a_name_and_the_cluster_keep_a_bounded_number_of_versions"),
    Bound("and of 100 versions in all", 100, "nimbus.counters.ended:OF_ALL",
          f"{ENDED}::test_a_name_and_the_cluster_keep_a_bounded_number_of_versions"),
    Bound("errors and counters have at most 64 KiB", 64, "nimbus.counters.ended:MOST_BYTES / 1024",
          f"{ENDED}::test_what_is_kept_of_a_version_is_bounded_and_the_newest_errors_stay"),
    Bound("older than `supervisor.logs.keep.days` (7)", 7, option("supervisor.logs.keep.days"),
          f"{ENDED}::test_old_versions_are_removed_when_the_next_one_ends"),
    Bound("the logs of at most 20 versions", 20, "supervisor.kept_logs:MOST_TOPOLOGIES",
          f"{KEPT}::test_the_logs_of_the_topologies_that_ended_last_are_kept"),
    Bound("8 workers of each", 8, "supervisor.directories:_LOGS_KEPT",
          "supervisor/test_directories.py::test_logs_of_workers_that_have_left_do_not_accumulate"),
    Bound("no file of more than 64 MiB", 64, "supervisor.kept_logs:MOST_BYTES / 2**20",
          f"{KEPT}::test_what_user_code_put_in_place_of_a_log_is_not_kept"),
    Bound("the ten oldest calls of each task", 10, "worker.process.stacks:MOST_ASYNC",
          "worker/test_stacks.py::test_the_oldest_calls_of_an_asynchronous_task_are_shown_where_they_wait"),
    Bound("after five seconds without a heartbeat", 5, "supervisor.silence:SILENT_SECS",
          "squall_cli/test_stack_command.py::test_a_hung_call_and_one_that_holds_pythons_lock_are_found_in_a_cluster"),
    Bound("written nothing for SECS (86400, a day)", 86_400, "squall_cli.spark.table_sweep:OLD",
          "squall_cli/test_table_sweep.py::test_with_an_age_younger_files_are_swept_too_and_json_has_all"),
)

TESTING: Final = (
    Bound("within `timeout` real seconds (60)", 60, "local_cluster.complete:complete_topology.__defaults__[-2]",
          "local_cluster/test_incomplete_topologies.py::"
          "test_a_spout_that_is_idle_for_ever_times_out_and_says_why_it_is_idle"),
)

SPARK: Final = (
    Bound("tries one of them again and again, every minute in the end", 1, "worker.tasks.probing:LONGEST_PAUSE / 60",
          "squall_io/test_sink_outages.py::test_a_refused_batch_waits_until_a_person_has_removed_the_cause"),
    Bound("when the topology has written nothing for a day", 24, "squall_cli.spark.table_sweep:OLD / 3600",
          "squall_cli/test_table_sweep.py::test_with_an_age_younger_files_are_swept_too_and_json_has_all"),
    Bound("without a writer after 24 hours", 24, "squall_io.spark.manifest.sweep:TMP_AGE / 3600",
          "squall_io/test_sweep.py::test_temporary_files_of_earlier_epochs_and_old_ones_without_an_owner_are_deleted"),
    Bound("whose last keepalive is 24 hours old", 24, "squall_io.spark.results.versions:DEAD_AFTER / 3600",
          "squall_io/test_versions.py::test_an_attempt_with_a_recent_sign_of_activity_is_not_swept"),
    Bound("the third time in a row it fails", 3, "squall_io.spark.sink.errors:UNKNOWN_TRIES",
          f"{WRITER}::test_a_batch_without_any_file_is_given_up_with_the_reason"),
    Bound("the sink tries for 30 s; then the worker ends", 30, "squall_io.spark.sink.sink_table:START_SECONDS",
          f"{WRITER}::test_opening_gives_up_after_a_while_and_releases_everything"),
)

TABLES: Final = (
    Bound("Versions are kept for as long as the log keeps them, 7 days", 7, "squall_io.spark.delta.following:RETAINED / 86_400",
          "squall_io/test_delta_log.py::test_a_log_is_the_same_from_a_checkpoint_and_old_versions_go"),
    Bound("A lease holds for 10 minutes", 10, "squall_io.spark.manifest.leases:TERM / 60",
          "squall_io/test_leases.py::test_a_lease_expires_by_the_clock_that_dates_it_unless_it_is_put_again"),
    Bound("is renewed every 150 s", 150, "squall_io.spark.manifest.leases:RENEW",
          "squall_io/test_leases.py::test_a_thread_renews_the_lease"),
    Bound("with files of 128 MiB", 128, "squall_io.spark.manifest.rewriting:TARGET / 2**20",
          "squall_io/test_sink_compactor.py::test_the_files_of_a_crowded_directory_become_one_and_readers_see_no_difference"),
    Bound("Its first task looks each minute which batches have come", 1, "squall_io.spark.sink.compactor:LOOK / 60",
          "squall_io/test_sink_compactor.py::test_the_files_of_a_crowded_directory_become_one_and_readers_see_no_difference"),
    Bound("it is presumed after 10 minutes without a sign", 10, "squall_io.spark.manifest.rewriting:QUIET / 60",
          "squall_io/test_rewriting.py::test_a_rewriter_is_busy_until_it_ends_or_has_been_quiet_for_long"),
    Bound("a few of the small files and 32 MiB of rows", 32, "squall_io.spark.compaction.parquet_merges:GROUP / 2**20",
          "squall_io/test_compaction.py::test_a_new_file_is_uploaded_and_not_held_in_memory"),
    Bound("tries to compact again after 2 minutes", 2, "squall_io.spark.sink.compactor:2 * LOOK / 60",
          "squall_io/test_sink_compactor.py::test_an_error_that_stays_is_logged_once_and_looked_for_less_and_less"),
)

SINK: Final = (
    Bound("A sink adds its batches every 5 seconds", 5, "squall_io.spark.sink.delta_follower:ROUND",
          "squall_io/test_delta_follower.py::test_a_sink_of_default_settings_adds_its_batches_within_a_round"),
    Bound("another task of a sink within 60 seconds", 60, "squall_io.spark.sink.delta_follower:2 * LISTED + 2 * ROUND",
          "squall_io/test_delta_follower.py::test_what_a_killed_task_left_out_is_in_the_log_within_a_minute_though_all_is_idle"),
    Bound("Versions are kept for 7 days", 7, "squall_io.spark.delta.following:RETAINED / 86_400",
          "squall_io/test_delta_log.py::test_a_log_is_the_same_from_a_checkpoint_and_old_versions_go"),
    Bound("unless a single attempt takes longer than ten minutes", 10, "squall_io.spark.signs_of_life:PATIENCE / 60",
          "squall_io/test_long_attempts.py::test_an_attempt_reports_progress_for_its_patience_and_no_longer"),
    Bound("The log reports this at once, then every minute", 1, "squall_io.spark.sink.errors:LOG_AGAIN / 60",
          f"{WRITER}::test_a_problem_is_reported_while_it_lasts_and_when_it_is_over"),
    Bound("the sink tries one of them every minute", 1, "worker.tasks.probing:LONGEST_PAUSE / 60",
          f"{OUTAGES}::test_probes_of_a_task_that_is_down_come_after_pauses_that_double_up_to_a_minute"),
    Bound("the batch is tried three times before it fails", 3, "squall_io.spark.sink.errors:UNKNOWN_TRIES",
          f"{WRITER}::test_an_unknown_error_is_retried_a_few_times"),
    Bound("a session without sinks is stopped after 30 s", 30, "squall_io.spark.sink.epoch_writer:LINGER",
          "squall_io/test_sessions_linger.py::test_the_next_user_gets_the_same_session_and_the_last_one_stops_it_in_the_end"),
    Bound("the sink tries for 30 s to reach it", 30, "squall_io.spark.sink.sink_table:START_SECONDS",
          f"{WRITER}::test_opening_gives_up_after_a_while_and_releases_everything"),
)

REPROCESSING: Final = (
    Bound("(`split_bytes`, 64 MB)", 64, "squall_io.spark.spouts.discovery:SPLIT_BYTES / 2**20",
          "squall_io/test_spout_text_lines.py::test_however_a_file_is_cut_each_line_is_in_one_split"),
    Bound("A line above 16 MiB is left out", 16, "squall_io.lines.cutting:LONGEST / 2**20",
          "squall_io/test_spout_text_lines.py::test_a_line_that_is_too_long_is_reported_with_its_position_and_the_others_are_read"),
    Bound("the tasks search every 5 s", 5, "squall_io.spark.spouts.lines:POLL_SECONDS",
          "squall_io/test_spout_discovery.py::test_a_file_that_is_being_written_is_read_when_it_is_stable"),
    Bound("looks every 2 s (`poll_interval`)", 2, "squall_io.spark.spouts.committed_rows:POLL_SECONDS",
          "squall_io/test_spout_committed_rows.py::test_later_commits_than_the_snapshot_are_not_read_unless_the_table_is_followed"),
    Bound("About once a second the tasks record", 1, "squall_io.spark.spouts.reading_spout:SAVE_SECONDS",
          "squall_io/test_spout_stores_away.py::test_positions_are_written_at_most_once_a_second_and_only_after_changes"),
    Bound("tried again every 10 s", 10, "squall_io.spark.spouts.reading_spout:RETRY_SECONDS",
          "squall_io/test_spout_discovery.py::test_a_damaged_file_does_not_delay_later_ones"),
    Bound("Squall looks for new batches every 0.2 s at most", 0.2, "squall_io.spark.source.watching:LOOK_SECONDS",
          "squall_io/test_source_watching.py::test_a_stream_looks_five_times_a_second_and_reads_only_what_has_changed"),
)
# fmt: on

BOUNDS: Final = {
    "README.md": README,
    "docs/cluster.md": CLUSTER,
    "docs/command-line.md": COMMANDS,
    "docs/concepts.md": CONCEPTS,
    "docs/guaranteeing-message-processing.md": RELIABILITY,
    "docs/running.md": RUNNING,
    "docs/state.md": (
        Bound(
            "ends: by default after 1 s",
            1,
            "topology_api.epoch_rules:DEFAULT_SECS",
            "topology_api/test_epoch_secs.py::test_an_epoch_lasts_as_long_as_the_longest_interval_of_a_staged_sink",
        ),
        Bound(
            "after 1 s, then with pauses that double up to a minute",
            1,
            "worker.tasks.stateful_bolt:FIRST_PAUSE",
            "local_cluster/test_stateful_bolts.py::test_a_timer_that_raises_is_tried_again_and_has_changed_nothing",
        ),
        Bound(
            "with pauses that grow up to 10 s",
            10,
            "worker.loop.store_calls:LONGEST_PAUSE",
            "worker/test_epoch_store.py::test_pauses_double_up_to_ten_seconds",
        ),
        Bound(
            "A store that does not answer is named after five seconds",
            5,
            "squall.epoch_status:LONG_WAIT",
            "squall/test_epoch_status.py::test_an_epoch_that_does_not_end_names_its_tasks_those_with_a_reason_first",
        ),
        Bound(
            "the workers' logs have a warning after ten seconds",
            10,
            "worker.loop.epoch_telling:LONG_END",
            "local_cluster/test_epochs_shown.py::test_an_epoch_that_does_not_end_names_its_task_and_spouts_at_their_limit_wait_for_the_commit",
        ),
    ),
    "docs/security.md": SECURITY,
    "docs/spark-guarantees.md": SPARK,
    "docs/spark-reprocessing.md": REPROCESSING,
    "docs/spark-sink.md": SINK,
    "docs/spark-tables.md": TABLES,
    "docs/submitting.md": SUBMITTING,
    "docs/testing-your-topology.md": TESTING,
    "docs/worker-processes.md": WORKERS,
}
