//! Sixty days of a well-behaved team of twelve: none of its work is refused, except by the one limit that it asks a
//! human about, and at the end all work has ended.

use std::collections::BTreeMap;

use lastword_core::input::{Delivery, Finish, Progress, Question};
use lastword_core::{Input, Principal, Reply};
use lastword_facts::envelope::{Address, Draft};
use lastword_facts::ids::{AgentId, DAY_MS, EscalationId, HOUR_MS, Seq};
use lastword_facts::limits::Limits;
use lastword_facts::names::Ref;
use lastword_facts::{Code, MessageType};
use lastword_sim::{Pace, World};

const DAYS: u64 = 60;
/// The time that one action takes.
const STEP_MS: u64 = 20_000;
/// The days on which no human is there, one less than would stop the agents' own work.
const AWAY: std::ops::Range<u64> = 20..32;

const LEAD: usize = 0;
const DEVELOPERS: [usize; 4] = [1, 2, 3, 4];
const REVIEWERS: [usize; 4] = [5, 6, 7, 8];
const TESTER: usize = 9;
const OPERATIONS: usize = 10;
const RESEARCHER: usize = 11;
const TEAM: u8 = 12;

struct Town {
    world: World,
    /// The questions for a human, by the day on which they are answered.
    asked: BTreeMap<u64, Vec<(EscalationId, bool)>>,
}

impl Town {
    fn agent(&self, who: usize) -> Principal {
        self.world.agent(self.id(who)).unwrap()
    }

    fn id(&self, who: usize) -> AgentId {
        self.world.agents()[who]
    }

    fn name(&self, who: usize) -> Address {
        let known = self.world.core().state().agent(self.id(who)).and_then(|agent| agent.name.clone());
        Address::Name(known.unwrap())
    }

    /// Gives an input that must succeed, and lets some time pass.
    #[track_caller]
    fn done(&mut self, input: Input) -> Reply {
        let said = format!("{input:?}");
        let reply = self.world.give(input).unwrap();
        assert!(!matches!(reply, Reply::Refused { .. }), "day {}: {said}: {reply:?}", self.world.now().0 / DAY_MS);
        self.world.walk(STEP_MS);
        reply
    }

    #[track_caller]
    fn asks(&mut self, by: Principal, to: Address, reference: Option<&str>) -> Seq {
        let mut draft = Draft::new(MessageType::Request, to, "please do your part of this, and say what you found");
        draft.reference = reference.map(|name| Ref::new(name).unwrap());
        let Reply::Sent(sent) = self.done(Input::Send(by, Box::new(draft))) else { panic!("it is sent") };
        sent[0]
    }

    #[track_caller]
    fn takes(&mut self, who: usize) -> Delivery {
        let by = self.agent(who);
        let Reply::Delivery(Some(delivery)) = self.done(Input::Take(by, None)) else { panic!("{who} has work") };
        self.done(Input::Progress(by, None, Progress { note: "at it".into(), ..Progress::default() }));
        delivery
    }

    #[track_caller]
    fn finishes(&mut self, who: usize, body: &str) {
        let by = self.agent(who);
        self.done(Input::Finish(by, None, Box::new(Finish { body: body.into(), ..Finish::default() })));
    }

    /// A review: requested in the developer's turn, done by the reviewer, read in the developer's next turn.
    fn review(&mut self, developer: usize, reviewer: usize) {
        let (by, to) = (self.agent(developer), self.name(reviewer));
        self.asks(by, to, None);
        self.finishes(developer, "");
        self.takes(reviewer);
        self.finishes(reviewer, "this line is wrong");
        self.takes(developer);
    }

    /// Work with rounds of review: the lead asks three developers at once, and answers when all have answered.
    fn day(&mut self, reference: &str) {
        let human = self.world.human();
        let lead = self.name(LEAD);
        self.asks(human, lead, Some(reference));
        self.takes(LEAD);
        let (by, three) = (self.agent(LEAD), Address::List(DEVELOPERS[..3].iter().map(|d| self.name(*d)).collect()));
        self.asks(by, three, None);
        self.finishes(LEAD, "");
        for developer in &DEVELOPERS[..3] {
            self.takes(*developer);
        }
        for _ in 0..3 {
            for place in 0..3 {
                self.review(DEVELOPERS[place], REVIEWERS[place]);
            }
        }
        for developer in &DEVELOPERS[..3] {
            self.finishes(*developer, "merged");
        }
        self.takes(LEAD);
        for _ in 0..2 {
            // An answer that is ready for its task joins its turn.
            let by = self.agent(LEAD);
            self.done(Input::Take(by, None));
        }
        self.finishes(LEAD, "all three are merged");
    }

    /// A review that takes more rounds than a conversation has: a human is asked, and agrees a day later.
    fn long_review(&mut self, day: u64, reference: &str) {
        let (developer, reviewer) = (DEVELOPERS[3], REVIEWERS[3]);
        let (human, to) = (self.world.human(), self.name(developer));
        self.asks(human, to, Some(reference));
        self.takes(developer);
        for _ in 0..3 {
            self.review(developer, reviewer);
        }
        let draft = Draft::new(MessageType::Request, self.name(reviewer), "once more, please");
        let by = self.agent(developer);
        let Some(Reply::Refused { refusal, .. }) = self.world.give(Input::Send(by, Box::new(draft))) else {
            panic!("three rounds are what a conversation has");
        };
        assert_eq!(refusal.code, Code::DepthCap);
        let question = Question { body: "one more round?".into(), options: vec![], reference: None, key: None };
        let Reply::Escalated(asked) = self.done(Input::Escalate(by, None, question)) else { panic!("it is asked") };
        self.finishes(developer, "");
        self.asked.entry(day + 1).or_default().push((asked, true));
    }

    /// A check that needs a human's answer, which comes three days later.
    fn check(&mut self, day: u64) {
        let (human, tester) = (self.world.human(), self.name(TESTER));
        self.asks(human, tester, Some(&format!("CHECK/{day}")));
        self.takes(TESTER);
        let options = vec!["the old one".into(), "the new one".into()];
        let question = Question { body: "which of them?".into(), options, reference: None, key: None };
        let by = self.agent(TESTER);
        let Reply::Escalated(asked) = self.done(Input::Escalate(by, None, question)) else { panic!("it is asked") };
        self.finishes(TESTER, "");
        self.asked.entry(day + 3).or_default().push((asked, false));
    }

    /// A human answers the questions that are due today, and the tasks that asked continue.
    fn answers(&mut self, day: u64) {
        let human = self.world.human();
        for (asked, lift) in self.asked.remove(&day).unwrap_or_default() {
            if lift {
                self.done(Input::ChooseLift(human, asked, 1, None));
                self.takes(DEVELOPERS[3]);
                self.review(DEVELOPERS[3], REVIEWERS[3]);
                self.finishes(DEVELOPERS[3], "merged at last");
            } else {
                self.done(Input::Answer(human, asked, "the new one".into(), None));
                self.takes(TESTER);
                self.finishes(TESTER, "the new one works");
            }
        }
    }

    /// Work that an agent starts on its own each day, whether or not a human is there.
    fn operations(&mut self, day: u64) {
        let (by, to) = (self.agent(OPERATIONS), self.name(RESEARCHER));
        self.asks(by, to, Some(&format!("OPS-{day}")));
        self.takes(RESEARCHER);
        self.finishes(RESEARCHER, "nothing new");
        self.takes(OPERATIONS);
        self.finishes(OPERATIONS, "noted");
    }

    fn until(&mut self, day: u64, hour: u64) {
        let then = day * DAY_MS + hour * HOUR_MS;
        let now = self.world.now().0;
        assert!(now <= then, "the work of a day fits into it: day {day}, {hour} o'clock");
        self.world.walk(then - now);
    }

    /// The broker is off at night, and is started again from its log or its snapshot.
    fn night(&mut self, day: u64) {
        self.until(day, 22);
        self.world.idle(8 * HOUR_MS);
        self.world.restart(day.is_multiple_of(2));
        self.world.audit(false);
    }
}

fn sixty_days(pace: Pace) {
    let world = World::new(&pace.limits(&Limits::default()), TEAM);
    let mut town = Town { world, asked: BTreeMap::new() };
    for day in 1..=DAYS {
        town.until(day, 7);
        town.operations(day);
        let (human, weekday) = (town.world.human(), day % 7);
        if !AWAY.contains(&day) {
            town.until(day, 9);
            town.done(Input::Act(human));
            town.answers(day);
        }
        // No question is asked that would be answered while all are away, or after the last day.
        let before_leave = (AWAY.start - 3..AWAY.start).contains(&day) || day + 3 > DAYS;
        if weekday < 5 && !AWAY.contains(&day) {
            town.day(&format!("DAY-{day}"));
            if weekday == 0 && !before_leave {
                town.long_review(day, "WEEKLY");
            }
            if weekday == 2 && !before_leave {
                town.check(day);
            }
        }
        town.night(day);
    }
    town.world.audit(true);
    assert_eq!(town.asked, BTreeMap::new(), "everything was answered");
    assert_eq!(town.world.comes_to_rest(), Ok(()));
    assert_eq!(town.world.broken(), []);
    let (facts, records) = (town.world.log().len(), town.world.witness().records());
    println!("{DAYS} days, {pace:?}: {facts} facts; the witness holds {records} records");
    assert!(facts > 5_000, "they worked");
}

#[test]
fn sixty_days_of_a_team_of_twelve_meet_no_refusal() {
    sixty_days(Pace::Hours);
}

#[test]
fn sixty_days_with_retention_of_seconds_meet_no_refusal() {
    sixty_days(Pace::Months);
}
