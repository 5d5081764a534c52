//! Every refusal that the caller itself gets out of: what its hint says works. Those that a human lifts: `every_lift`.

use crate::every_lift::Play;

/// A line is a case: `CODE | LIMITS | STEPS | REFUSED | REMEDY`. The steps lead to the state, the refused step has to get
/// the code, and each step of the remedy has to succeed. A step that begins with `!` is refused, too.
const TABLE: &str = r##"
malformed_header | | | kilo POST messages please look | kilo POST messages [FROM:kilo][TO:hive][TYPE:REQUEST][REF:R-1][DEPTH:0] please look
malformed | | | kilo POST messages {"type":"request","to":"Hive","ref":"R-1","body":"look"} | kilo POST messages {"type":"request","to":"hive","ref":"R-1","body":"look"}
malformed | | | kilo POST messages {"type":"request","to":"hive","ref":"R 1","body":"look"} | kilo POST messages {"type":"request","to":"hive","ref":"R-1","body":"look"}
malformed | | | kilo PATCH messages | kilo GET messages
forbidden | | | kilo POST agents {"name":"nemo"} | operator POST agents {"name":"nemo"}
from_mismatch | | | kilo POST messages {"type":"request","from":"lima","to":"hive","ref":"R-1","body":"look"} | kilo asks hive R-1
depth_mismatch | | | kilo POST messages {"type":"request","depth":3,"to":"hive","ref":"R-1","body":"look"} | kilo asks hive R-1
unknown_recipient | | | kilo asks nemo R-1 | kilo GET agents; kilo asks hive R-1
self_send | | $TAKEN | kilo asks kilo - | kilo finishes
not_addressee | | kilo asks hive R-1 | lima POST messages {"type":"response","to":"kilo","request_id":"req-0001","body":"done"} | hive answers
reply_not_expected | | $TAKEN; kilo asks hive -; hive takes; hive finishes; kilo tells hive T-1/1 | hive POST messages {"type":"response","to":"kilo","ref":"T-1/1","body":"thanks"} | kilo finishes
passive_reply | | $BELOW | hive asks kilo - | hive finishes; kilo takes; kilo asks hive -
cycle | | $BELOW; hive asks lima -; hive finishes; lima takes | lima asks kilo - | lima finishes; hive takes; hive finishes; kilo takes
ref_in_use | | kilo asks hive R-1 | lima asks hive R-1 | lima asks hive R-2
ref_in_use | | kilo asks hive R-1 | kilo asks hive R-1 | hive takes; hive finishes; kilo takes; kilo asks hive -
ref_conflict | | $TAKEN; kilo asks hive - | kilo asks hive X-1 | kilo asks hive -; kilo asks hive T-1/1
ref_conflict | | $OUTSIDE | kilo asks hive X-1 | hive takes; hive finishes; kilo takes; kilo asks hive -
ref_required | | | kilo asks hive - | kilo asks hive R-1
ref_required | | | kilo escalates | kilo POST escalations {"message":"well?","ref":"R-1"}
depth_cap | depth_max=1 | $ANSWERED | kilo asks hive T-1 | kilo finishes
hop_cap | hops_max=1 | $BELOW | hive asks lima - | hive finishes; kilo takes
pair_rate | pair_messages_max=1 | $TAKEN; kilo asks hive - | kilo asks hive - | time 1; kilo asks hive -
sender_rate | sender_messages_max=1 | $TAKEN; kilo asks hive - | kilo asks lima - | time 1; kilo asks lima -
fan_out | fan_out_targets_max=1 | $TAKEN; kilo asks hive - | kilo asks lima - | time 1; kilo asks lima -
root_allowance | roots_per_hour_max=1 | kilo asks hive R-1 | kilo asks hive R-2 | time 60; kilo asks hive R-2
grant_agents | grant_agents_max=2 | $TAKEN; kilo asks hive - | kilo asks lima - | kilo asks hive -
budget | agent_day_tokens_max=100 | $TAKEN; kilo spends 500 | kilo asks hive - | kilo finishes; time 1440; kilo asks hive R-1
unknown_request | | kilo asks hive R-1 | kilo GET requests/req-9999 | kilo GET requests/req-0001
already_settled | | kilo asks hive R-1; kilo POST requests/req-0001/cancel | kilo POST requests/req-0001/cancel | kilo GET requests/req-0001
saturated | inbox_max=1 | kilo asks hive R-1 | lima asks hive R-2 | hive takes; lima asks hive R-2
saturated | claims_max=1 | kilo POST claims {"resource":"repo:one"} | kilo POST claims {"resource":"repo:two"} | kilo DELETE claims/clm-1; kilo POST claims {"resource":"repo:two"}
saturated | agents_max=5 | | operator POST agents {"name":"nemo"} | operator DELETE agents/mike; operator POST agents {"name":"nemo"}
saturated | schedules_max=1 | operator POST schedules {"name":"one","cron":"0 2 * * *","to":"hive","body":"look"} | operator POST schedules {"name":"two","cron":"0 2 * * *","to":"hive","body":"look"} | operator DELETE schedules/one; operator POST schedules {"name":"two","cron":"0 2 * * *","to":"hive","body":"look"}
too_large | body_bytes_max=20 | | kilo asks hive R-1 | kilo POST messages {"type":"request","to":"hive","ref":"R-1","body":"read docs/plan.md"}
turn_closed | turn_refusals_max=0 | $TAKEN | kilo asks hive - | kilo finishes
lease_lost | | $TAKEN; time 10 | kilo POST turns/turn-1/finish {"answer":"done"} | kilo takes; kilo finishes
forbidden | | $TAKEN | kilo POST messages Lastword-Turn=turn-1 {"type":"request","to":"hive","body":"look"} | kilo POST messages Lastword-Turn=TURN {"type":"request","to":"hive","body":"look"}
unknown_recipient | | | operator GET agents/hiev | operator GET agents/hive
unknown_request | | | kilo GET message | kilo GET messages
saturated | rooms_max=1 | operator opens den | operator opens lair | operator opens den
turn_required | | operator PATCH agents/kilo {"turns_max":2}; operator asks kilo T-1; operator asks kilo T-2; kilo takes; kilo takes | kilo asks hive - | kilo POST messages Lastword-Turn=TURN {"type":"request","to":"hive","body":"look"}
idempotency_conflict | | kilo POST messages {"type":"request","to":"hive","ref":"R-1","request_id":"k-1","body":"one"} | kilo POST messages {"type":"request","to":"hive","ref":"R-2","request_id":"k-1","body":"two"} | kilo POST messages {"type":"request","to":"hive","ref":"R-2","request_id":"k-2","body":"two"}
name_taken | | | operator POST agents {"name":"kilo"} | operator POST agents {"name":"kilo-2"}; operator POST agents/kilo/token {}
approval_used | | $APPROVED; kilo POST approvals/apr-1/use {"tool":"rm","arguments":{}} | kilo POST approvals/apr-1/use {"tool":"rm","arguments":{}} | kilo holds rm; operator GET approvals; operator POST approvals/apr-2/decision {"decision":"approve"}; kilo POST approvals/apr-2/use {"tool":"rm","arguments":{}}
approval_expired | | $HELD; time 5 | kilo POST approvals/apr-1/use {"tool":"rm","arguments":{}} | kilo escalates
approver_not_allowed | | $HELD | hive POST approvals/apr-1/decision {"decision":"reject"} | operator POST approvals/apr-1/decision {"decision":"reject"}
digest_mismatch | | $APPROVED | kilo POST approvals/apr-1/use {"tool":"rm","arguments":{"path":"/"}} | kilo POST approvals/apr-1/use {"tool":"rm","arguments":{}}
digest_mismatch | | $APPROVED | kilo POST approvals/apr-1/use {"tool":"rm","arguments":{"path":"/"}} | kilo POST approvals {"tool":"rm","arguments":{"path":"/"}}
escalations_open | escalations_open_max=1 | $TAKEN; kilo escalates | kilo escalates | operator POST escalations/esc-1/answer {"answer":"yes"}; kilo takes; kilo escalates
approvals_open | approvals_open_max=1 | $HELD | kilo holds mv | operator POST approvals/apr-1/decision {"decision":"reject"}; kilo holds mv
not_approved | | $HELD; operator POST approvals/apr-1/decision {"decision":"reject","comment":"keep it"} | kilo POST approvals/apr-1/use {"tool":"rm","arguments":{}} | kilo GET approvals/apr-1; kilo finishes
claim_held | | $CLAIMED | hive POST claims {"resource":"repo:one"} | hive POST claims {"resource":"repo:two"}
claim_held | | $CLAIMED | hive POST claims {"resource":"repo:one"} | kilo finishes; hive POST claims {"resource":"repo:one"}
not_decided | | $HELD | kilo POST approvals/apr-1/use {"tool":"rm","arguments":{}} | operator GET approvals; operator POST approvals/apr-1/decision {"decision":"approve"}; kilo POST approvals/apr-1/use {"tool":"rm","arguments":{}}
task_questions | task_questions_max=1 | $TAKEN; kilo escalates; operator POST escalations/esc-1/answer {"answer":"yes"}; kilo takes | kilo escalates | kilo finishes
caused_by_refused | | $TAKEN; kilo tells hive T-1/1 | hive POST messages {"type":"request","to":"kilo","ref":"X-1","caused_by":"msg-13","body":"look"} | hive POST messages {"type":"info","to":"kilo","ref":"X-1","caused_by":"msg-13","body":"look"}
refused_too_often | refused_writes_max=2 | !kilo asks nemo R-1; !kilo asks nemo R-1 | kilo asks hive R-1 | time 1; kilo asks hive R-1
turns_open | | operator asks kilo T-1; operator asks kilo T-2; kilo takes | kilo POST messages {"type":"response","to":"operator","request_id":"req-0002","body":"done"} | kilo finishes; kilo takes; kilo finishes
quota_bytes | agent_day_bytes_max=1 | kilo asks hive R-0 | kilo asks hive R-1 | time 1440; kilo asks hive R-1
"##;

/// The beginnings that only these cases share.
const BEGINNINGS: [(&str, &str); 3] = [
    (
        "$APPROVED",
        r#"$TAKEN; kilo holds rm; operator GET approvals; operator POST approvals/apr-1/decision {"decision":"approve"}"#,
    ),
    ("$HELD", "$TAKEN; kilo holds rm"),
    ("$CLAIMED", r#"$TAKEN; operator asks hive T-2; hive takes; kilo POST claims {"resource":"repo:one"}"#),
];

/// Plays a case; the error says what differs.
async fn follow(line: &str) -> Result<(), String> {
    let fields: Vec<&str> = line.split(" |").map(str::trim).collect();
    let [code, limits, steps, refused, remedy] = fields[..] else { panic!("{line}: five fields") };
    let mut play = Play::within(limits).await;
    let steps = BEGINNINGS.iter().fold(steps.to_owned(), |steps, (name, steps_of)| steps.replace(name, steps_of));
    play.steps(&steps).await?;
    let problem = play.step(refused).await.unwrap().body;
    if problem["code"] != code {
        return Err(format!("is refused otherwise: {problem}"));
    }
    // Whoever is told to wait is told how long, and that is enough.
    let (hint, wait) = (problem["hint"].as_str().unwrap(), problem["retry_after_ms"].as_u64());
    if hint.contains("retry_after_ms") && !hint.contains("if present") && wait.is_none() {
        return Err(format!("says to wait, and not how long: {problem}"));
    }
    let waited = remedy.split("; ").find_map(|step| step.strip_prefix("time ")?.parse::<u64>().ok());
    if let Some(minutes) = waited
        && wait.is_none_or(|ms| ms > minutes * 60_000)
    {
        return Err(format!("names another time: {problem}"));
    }
    play.steps(remedy).await.map_err(|error| format!("{hint} → {error}"))
}

#[tokio::test]
async fn each_other_refusal_is_followed_by_what_its_hint_says() {
    let mut wrong = Vec::new();
    for line in TABLE.lines().filter(|line| !line.is_empty()) {
        if let Err(reason) = follow(line).await {
            wrong.push(format!("{line}\n    {reason}"));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
