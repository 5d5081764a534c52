//! What each reader of a refusal does about it, and the test that does it (G3).

use std::collections::BTreeSet;
use std::fmt::Write as _;

use lastword_facts::Code;

use crate::tidy::{check, read, sources};

/// The cases in which the caller gets out of it, and the test that plays them.
const FOLLOWED_CASES: &str = "server/tests/it/remedies.rs";
const FOLLOWED: &str = "each_other_refusal_is_followed_by_what_its_hint_says";
/// The cases that a human lifts, and the test that plays them.
const LIFTED_CASES: &str = "server/tests/it/every_lift.rs";
const LIFTED: &str = "each_refusal_is_lifted_by_the_step_that_it_names";

/// A line is a code: `CODE | SURFACES | HUMAN | TEST`. The surfaces are `all`, or those that have a call which meets it;
/// `lift` is the step that the refusal names; `followed` and `lifted` are the two tests above, and another one is named.
const TABLE: &str = "
malformed_header | HTTP, session, CLI | correct the header of `lastword send --text` | followed
malformed | all | correct the argument that the error names | followed
unauthenticated | all | name a valid token; an owner makes one with `lastword agent token NAME` | an_expired_token_is_refused_with_its_time_and_the_step_also_after_a_restart
forbidden | all | make the call yourself, or give the role that it needs | followed
from_mismatch | HTTP, session, CLI | correct FROM, or use that agent's token | followed
depth_mismatch | HTTP, session, CLI | correct DEPTH | followed
unknown_recipient | all | `lastword agent list`, then the name that it lists | followed
self_send | all | – | followed
not_addressee | HTTP, session, CLI | – | followed
reply_not_expected | HTTP, session, CLI | – | followed
passive_reply | all | – | followed
cycle | all | – | followed
ref_in_use | all | name another REF | followed
ref_conflict | all | – | followed
ref_required | all | name the work item with `--ref` | followed
depth_cap | all | lift | lifted
hop_cap | all | ask the last agent of the chain yourself | followed
task_requests | all | lift | lifted
root_allowance | all | lift | lifted
pair_rate | all | – | followed
sender_rate | all | – | followed
fan_out | all | – | followed
grant_messages | all | lift | lifted
grant_turns | all | lift | lifted
grant_agents | all | lift | lifted
grant_expired | all | lift | every_hint_that_a_team_meets_is_followed_by_a_transcript_and_meets_no_other_refusal
budget | all | lift | lifted
turns_soft | all | lift | lifted
turns_hard | all | lift | lifted
paused | all | lift | lifted
latched | all | lift | lifted
stopped | all | lift | lifted
unknown_request | all | look the id up: `lastword ls`, `lastword approvals` | followed
already_settled | all | – | followed
mutual_wait | all | – | a_send_to_a_list_waits_for_nothing_and_so_blocks_on_nobody
saturated | all | remove what is no longer needed, or raise the limit in `lastword.toml` | followed
too_large | all | put the content into a file, and name it | followed
turn_closed | all | – | followed
lease_lost | all | – | followed
turn_required | all | `--turn-token` | followed
idempotency_conflict | HTTP, session, CLI | – | followed
name_taken | HTTP, session, CLI | `lastword agent token NAME`, or another name | followed
approval_used | all | – | followed
approval_expired | all | – | followed
approver_not_allowed | all | decide the call | followed
digest_mismatch | all | – | followed
escalations_open | all | answer one: `lastword answer` | followed
approvals_open | all | decide one: `lastword approve`, `lastword reject` | followed
not_approved | all | – | followed
claim_held | all | – | followed
not_decided | all | decide the call | followed
unattended | all | any act; lift | lifted
unanswered | none: the reason that ends a task | ask again | transcript:team-human-after-days
task_questions | all | give the task again | followed
caused_by_refused | HTTP, session | – | followed
refused_too_often | all | – | followed
turns_open | HTTP, session, CLI | – | followed
disk_low | all | free space on the broker's disk | a_full_disk_refuses_writes_and_reads_and_a_humans_stop_go_on
epoch_over | all | – | after_a_restore_old_answers_reach_no_new_request_and_known_turns_go_on
quota_bytes | all | raise `agent_day_bytes_max` in `lastword.toml` | followed
auth_rate | all | wait, or use a valid token | an_address_that_fails_too_often_waits_and_its_valid_tokens_do_not
archived | HTTP, CLI | look into the archive | what_is_old_leaves_the_log_and_the_lookups_and_the_rest_goes_on_over_restarts
no_progress | all | lift | lifted
log_gone | all | put the files back, or restart the server | a_server_whose_files_were_moved_goes_on_once_they_are_back
";

const CODES: &str = "\
# Refusals

Every refusal code; the same on every surface. `hint` tells a model what to do next.

| code | HTTP | rule | meaning | hint |
|---|---|---|---|---|
";

const REMEDIES: &str = "
## Remedies

A refusal has a remedy for each reader:

- **A model** does what `hint` says.
- **A human** does the step of the table below. \"the lift\" is the one step in `lift`, which the program prints, too.
- **A program** reads the status: after `401` it stops until it has a valid token; after `429` and `503` it repeats the
  call after `retry_after_ms`, with the same `Idempotency-Key`; without `retry_after_ms` waiting is no remedy. After any
  other status it doesn't repeat the call as it is.

The test produces the refusal and follows the hint or takes the step, and that works. A surface is missing if it has no
call that meets the refusal.

| code | surfaces | a human | test |
|---|---|---|---|
";

#[test]
fn the_codes_document_is_the_table_in_the_code() {
    let rows: Vec<Vec<&str>> =
        TABLE.lines().filter(|line| !line.is_empty()).map(|line| line.split(" | ").collect()).collect();
    let codes = rows.iter().map(|row| row[0]);
    assert!(codes.eq(Code::ALL.iter().map(|code| code.word())), "each code has one row, in their order");
    let sources = sources();
    let cases = |path: &str| -> BTreeSet<String> {
        read(path).lines().filter_map(|line| Some(line.split_once(" |")?.0.to_owned())).collect()
    };
    let cases = [("followed", FOLLOWED, cases(FOLLOWED_CASES)), ("lifted", LIFTED, cases(LIFTED_CASES))];
    let mut text = CODES.to_owned();
    for code in Code::ALL {
        writeln!(text, "| `{code}` | {} | {} | {} | {} |", code.http_status(), code.rule(), code.title(), code.hint())
            .unwrap();
    }
    text.push_str(REMEDIES);
    for row in &rows {
        let [code, surfaces, human, test] = row[..] else { panic!("{row:?}: four fields") };
        let table = cases.iter().find(|(name, _, _)| *name == test);
        assert!(table.is_none_or(|(_, _, cases)| cases.contains(code)), "{code} has no case that is {test}");
        let test = table.map_or(test, |(_, function, _)| function);
        let there = match test.strip_prefix("transcript:") {
            Some(name) => read(&format!("core/testdata/transcripts/{name}.txt")).contains(code),
            None => sources.iter().any(|source| source.contains(&format!("fn {test}("))),
        };
        assert!(there, "{code}: there is no test {test}");
        let human = human.replace("lift", "the lift");
        writeln!(text, "| `{code}` | {surfaces} | {human} | `{test}` |").unwrap();
    }
    check("docs/refusals.md", &text);
}
