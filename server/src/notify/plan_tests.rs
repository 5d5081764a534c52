//! Tests of the plan in virtual time.

use lastword_core::Core;
use lastword_facts::Code;
use lastword_facts::fact::{
    ApprovalAsked, ApprovalDecided, Decision, EscalationOpened, IncidentNoted, LatchSet, Latched, Place,
};
use lastword_facts::ids::{AgentId, ApprovalId, ConvId, EscalationId, GrantId, IncidentId};

use super::*;

const WINDOW: u64 = 30_000;
const STALE: u64 = 4 * HOUR_MS;
/// Long after the epoch, so that no subtraction saturates.
const START: u64 = 1_000 * HOUR_MS;

fn rules(name: &str, minimum: Severity) -> Rules {
    Rules { name: name.into(), minimum, window_ms: WINDOW, hourly_max: 12, stale_ms: STALE }
}

fn plan() -> Plan {
    Plan::new(vec![rules("desk", Severity::Normal)], NotificationLedger::new())
}

fn at(ms: u64) -> Time {
    Time(START + ms)
}

fn question(id: u64) -> Fact {
    caused(id, EscalationCause::Asked)
}

fn caused(id: u64, cause: EscalationCause) -> Fact {
    let escalation = EscalationId(id);
    let body = "To eu or us?".into();
    Fact::EscalationOpened(EscalationOpened {
        escalation,
        task: None,
        agent: AgentId(1),
        conv: ConvId(1),
        cause,
        body,
        options: vec![],
    })
}

fn call(id: u64, asked: u64, lasts: u64) -> Fact {
    Fact::ApprovalAsked(ApprovalAsked {
        approval: ApprovalId(id),
        task: None,
        agent: AgentId(1),
        tool: "deploy".into(),
        arguments: String::from("{}").into(),
        reason: None,
        digest: [0; 32],
        expires_at: at(asked + lasts),
    })
}

fn decided(id: u64) -> Fact {
    let decision = Decision::Approve;
    Fact::ApprovalDecided(ApprovalDecided { approval: ApprovalId(id), by: None, decision, comment: None, edited: None })
}

fn latched(id: u64) -> Fact {
    let on = Latched::Place(Place::Conversation(ConvId(1)));
    Fact::LatchSet(LatchSet { incident: IncidentId(id), on, code: Code::TurnsHard, limit: 1, current: 2 })
}

fn controlled(control: Control) -> Fact {
    Fact::Controlled { scope: Scope::Workspace, control, by: AgentId(1) }
}

const fn asked(id: u64) -> Topic {
    Topic::Question(EscalationId(id))
}

/// Returns the topics that the first channel sends at its next moment, and how long after the start that is.
fn told(plan: &mut Plan) -> Option<(u64, Vec<(Topic, bool)>)> {
    let moment = plan.next()?;
    assert_eq!(plan.due(Time(moment.0 - 1)), [] as [usize; 0]);
    let parcel = plan.begin(0, moment, "ntf")?;
    assert_eq!(plan.ended(0, moment, Outcome::Sent), Next::Done);
    Some((moment.0 - START, parcel.topics))
}

#[test]
fn what_comes_within_a_window_is_one_notification_with_the_most_urgent_first() {
    let mut plan = plan();
    plan.hear(Seq(0), at(0), &question(1));
    plan.hear(Seq(0), at(10_000), &question(2));
    plan.hear(Seq(0), at(20_000), &latched(1));
    let incident = Topic::Incident(IncidentId(1));
    assert_eq!(told(&mut plan), Some((WINDOW, vec![(incident, false), (asked(1), false), (asked(2), false)])));
    // A later question opens a window of its own.
    plan.hear(Seq(0), at(40_000), &question(3));
    assert_eq!(told(&mut plan), Some((40_000 + WINDOW, vec![(asked(3), false)])));
}

#[test]
fn what_is_settled_within_the_window_is_not_told() {
    let mut plan = plan();
    plan.hear(Seq(0), at(0), &call(1, 0, 5 * MINUTE_MS));
    plan.hear(Seq(0), at(1_000), &decided(1));
    assert_eq!(plan.next(), None, "not even asked about");
    // A question can be settled without a fact of its own; the state shows that.
    plan.hear(Seq(0), at(0), &question(1));
    plan.correct(Plan::waiting_in(Core::default().state(), at(WINDOW)), &BTreeSet::new());
    assert_eq!((plan.due(at(WINDOW)), plan.begin(0, at(WINDOW), "ntf")), (vec![], None));
}

#[test]
fn what_still_waits_is_told_again_twice_and_then_no_more() {
    let mut plan = plan();
    plan.hear(Seq(0), at(0), &question(1));
    let mut last = 0;
    for again in [false, true, true] {
        let (moment, topics) = told(&mut plan).unwrap();
        assert_eq!(topics, [(asked(1), again)]);
        assert_eq!(moment - last, if again { STALE + WINDOW } else { WINDOW });
        last = moment;
    }
    assert_eq!(plan.next(), None);
}

#[test]
fn a_held_call_is_told_again_at_half_of_its_time_and_is_urgent_then() {
    let mut plan = plan();
    let topic = Topic::Call(ApprovalId(1));
    plan.hear(Seq(0), at(0), &call(1, 0, 5 * MINUTE_MS));
    assert_eq!(told(&mut plan), Some((WINDOW, vec![(topic, false)])));
    assert_eq!(plan.severity(topic, at(WINDOW)), Severity::Normal);
    let (moment, topics) = told(&mut plan).unwrap();
    assert_eq!((moment, topics), (150_000 + WINDOW, vec![(topic, true)]));
    assert_eq!(plan.severity(topic, at(moment)), Severity::Urgent);
    assert_eq!(plan.next(), None, "once");
}

#[test]
fn a_held_call_with_little_time_is_told_in_time_and_not_again() {
    let mut plan = plan();
    plan.hear(Seq(0), at(0), &call(1, 0, 20_000));
    assert_eq!(told(&mut plan).unwrap().0, 5_000, "a quarter of its time, and not the window");
    assert_eq!(plan.next(), None, "half of its time is less than a minute");
}

#[test]
fn a_channel_hears_of_nothing_below_its_minimum() {
    let mut plan =
        Plan::new(vec![rules("pager", Severity::Urgent), rules("all", Severity::Low)], NotificationLedger::new());
    plan.hear(Seq(0), at(0), &caused(1, EscalationCause::TimedOut));
    plan.hear(Seq(0), at(0), &question(2));
    plan.hear(Seq(0), at(0), &call(1, 0, 10 * MINUTE_MS));
    let all = plan.begin(1, at(WINDOW), "ntf-1").unwrap();
    assert_eq!(all.topics.len(), 3);
    assert_eq!(plan.begin(0, at(WINDOW), "ntf-2"), None);
    // Half of the call's time is over: it is urgent now, and new to this channel.
    let moment = plan.next().unwrap();
    assert_eq!(moment, at(5 * MINUTE_MS + WINDOW));
    assert_eq!(plan.begin(0, moment, "ntf-2").unwrap().topics, [(Topic::Call(ApprovalId(1)), false)]);
}

#[test]
fn a_stop_of_the_workspace_is_told_each_time() {
    let mut plan = plan();
    for start in [0, MINUTE_MS] {
        plan.hear(Seq(0), at(start), &controlled(Control::Stop));
        assert_eq!(told(&mut plan), Some((start + WINDOW, vec![(Topic::Stop, false)])));
        plan.hear(Seq(0), at(start + WINDOW + 1), &controlled(Control::Resume));
        assert_eq!(plan.next(), None);
    }
}

#[test]
fn a_storm_is_so_many_notifications_an_hour_and_the_rest_comes_in_the_next() {
    let mut plan = plan();
    for id in 1..=12 {
        plan.hear(Seq(0), at(id * MINUTE_MS), &question(id));
        assert_eq!(told(&mut plan).unwrap().1.len(), 1);
    }
    for id in 13..=40 {
        plan.hear(Seq(0), at(id * MINUTE_MS), &question(id));
    }
    let moment = plan.next().unwrap();
    assert_eq!(moment, at(MINUTE_MS + WINDOW + HOUR_MS), "an hour after the first of the twelve");
    let parcel = plan.begin(0, moment, "ntf").unwrap();
    assert_eq!((parcel.topics.len(), parcel.folded), (28, 28));
    plan.ended(0, moment, Outcome::Sent);
    plan.hear(Seq(0), moment.plus(1), &question(41));
    let moment = plan.next().unwrap();
    assert_eq!(plan.begin(0, moment, "ntf").unwrap().folded, 1, "the next one waits for the second of the twelve");
}

#[test]
fn what_failed_is_sent_again_under_its_id_with_longer_pauses_until_it_is_given_up() {
    let mut plan = plan();
    plan.hear(Seq(0), at(0), &question(1));
    plan.hear(Seq(0), at(0), &call(1, 0, 5 * MINUTE_MS));
    let mut now = at(WINDOW);
    for (attempt, pause) in RETRIES_MS.into_iter().enumerate() {
        let parcel = plan.begin(0, now, &format!("ntf-{attempt}")).unwrap();
        assert_eq!(parcel.id, "ntf-0");
        assert_eq!(parcel.topics.len(), if attempt == 0 { 2 } else { 1 }, "what was settled is no longer told");
        assert_eq!(plan.next(), None, "one at a time");
        assert_eq!(plan.ended(0, now, Outcome::Failed("down")), Next::Again);
        plan.hear(Seq(0), now, &decided(1));
        assert_eq!(plan.next(), Some(now.plus(pause)));
        now = now.plus(pause);
    }
    plan.begin(0, now, "ntf").unwrap();
    assert_eq!(plan.ended(0, now, Outcome::Failed("down")), Next::GivenUp);
    assert_eq!(plan.next(), Some(at(WINDOW + STALE + WINDOW)), "it is told again when it is stale");
    let given_up = |plan: &Plan| -> Vec<(String, GivenUp)> {
        plan.given_up().into_iter().map(|(channel, kept)| (channel.to_owned(), kept.clone())).collect()
    };
    let topics = vec![Topic::Question(EscalationId(1))];
    let kept = GivenUp { id: "ntf-0".into(), topics, at: now, reason: "down".into() };
    assert_eq!(given_up(&plan), [("desk".to_owned(), kept.clone())]);
    plan.resent("ntf-0", at(STALE), Some("still down"));
    let kept = GivenUp { at: at(STALE), reason: "still down".into(), ..kept };
    assert_eq!(given_up(&plan), [("desk".to_owned(), kept)]);
    plan.resent("ntf-0", at(STALE), None);
    assert_eq!(given_up(&plan), []);
}

#[test]
fn of_what_was_given_up_the_newest_hundred_of_a_channel_are_kept() {
    let mut plan = plan();
    for n in 1..=GIVEN_UP_MAX as u64 + 1 {
        plan.hear(Seq(n), at(n * HOUR_MS), &question(n));
        let mut now = at(n * HOUR_MS + WINDOW);
        while plan.begin(0, now, &format!("ntf-{n}")).is_some() {
            if plan.ended(0, now, Outcome::Failed("down")) == Next::GivenUp {
                plan.settle(Topic::Question(EscalationId(n)));
            }
            now = plan.next().unwrap_or(now);
        }
    }
    let ids: Vec<_> = plan.given_up().into_iter().map(|(_, kept)| kept.id.clone()).collect();
    assert_eq!((ids.len(), &*ids[0], &*ids[GIVEN_UP_MAX - 1]), (GIVEN_UP_MAX, "ntf-101", "ntf-2"));
}

#[test]
fn a_restart_repeats_nothing_that_arrived_and_loses_nothing_that_did_not() {
    let mut plan = plan();
    plan.hear(Seq(0), at(0), &question(1));
    told(&mut plan).unwrap();
    plan.hear(Seq(0), at(WINDOW), &question(2));
    let parcel = plan.begin(0, at(2 * WINDOW), "ntf-2").unwrap();
    let (book, waiting) = (plan.book().clone(), plan.waiting.clone());
    // Killed while sending; a third question arrived while the server was down.
    let mut plan = Plan::new(vec![rules("desk", Severity::Normal), rules("new", Severity::Normal)], book);
    plan.correct(waiting, &BTreeSet::new());
    plan.hear(Seq(0), at(2 * WINDOW + 1), &question(3));
    let again = plan.begin(0, at(2 * WINDOW + 2), "ntf-9").unwrap();
    assert_eq!((again.id, again.topics), (parcel.id, vec![(asked(2), false)]));
    plan.ended(0, at(2 * WINDOW + 2), Outcome::Sent);
    let moment = at(3 * WINDOW + 1);
    assert_eq!(plan.begin(0, moment, "ntf-3").unwrap().topics, [(asked(3), false)]);
    // A new channel is notified of everything that is pending.
    assert_eq!(plan.begin(1, moment, "ntf-4").unwrap().topics.len(), 3);
}

#[test]
fn what_is_only_to_be_known_is_told_once_and_not_when_it_was_read() {
    let mut plan = plan();
    let alert = Fact::AlertRaised { message: Seq(4), agent: AgentId(2), pushed: true };
    let counted = Fact::AlertRaised { message: Seq(6), agent: AgentId(2), pushed: false };
    let noted = |incident| {
        Fact::IncidentNoted(IncidentNoted {
            incident: IncidentId(incident),
            agent: AgentId(2),
            code: Code::RootAllowance,
            limit: 10,
            current: 11,
        })
    };
    plan.hear(Seq(5), at(0), &alert);
    plan.hear(Seq(7), at(0), &counted);
    plan.hear(Seq(8), at(0), &Fact::Unattended { percent: 50 });
    plan.hear(Seq(9), at(0), &Fact::GrantAged { grant: GrantId(1), percent: 80 });
    plan.hear(Seq(10), at(0), &noted(1));
    let incident = (Topic::Incident(IncidentId(1)), false);
    let note = |seq| (Topic::Note(Seq(seq)), false);
    assert_eq!(told(&mut plan), Some((WINDOW, vec![note(5), incident, note(8), note(9)])));
    assert_eq!(plan.next(), None, "none of it is told again");
    plan.hear(Seq(11), at(WINDOW), &alert);
    plan.correct(BTreeMap::new(), &BTreeSet::from([Seq(5)]));
    assert_eq!(plan.next(), None, "it was read");
}
