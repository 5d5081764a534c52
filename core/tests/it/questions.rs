//! A human's answer reaches whoever asked (H1, D9).

use lastword_facts::fact::Fact;

use crate::script::{Broker, play};

#[test]
fn what_an_agent_asks_outside_a_turn_is_answered_by_a_message_that_wakes_it() {
    let script = "human uma\nagent a\numa: send a T-1 look around\na: take\na: finish all quiet\n";
    let (_, mut world) = play(script, Broker::Whole);
    let asked = world.line("a: escalate ref=T-1 which region?");
    assert!(asked.iter().any(|line| line.contains("which region?")), "{asked:?}");
    let answered = world.line("uma: answer esc-1 eu");
    assert!(answered.iter().any(|line| line.contains("uma -> a REQUEST T-1") && line.contains("eu")), "{answered:?}");
    assert!(answered.iter().any(|line| line.contains("grant-2")), "a grant of this human: {answered:?}");
    let taken = world.line("a: take").join("\n");
    assert!(taken.contains("turn-2"), "{taken}");
    let again = world.line("uma: answer esc-1 us").join("\n");
    assert!(again.contains("already_settled"), "{again}");
}

#[test]
fn what_a_human_asks_is_answered_by_a_notice() {
    let script = "human uma\nhuman ulf\nagent a\numa: send a T-1 look around\na: take\na: finish all quiet\n";
    let (_, mut world) = play(script, Broker::Whole);
    let asked = world.line("ulf: escalate ref=Q-1 who looks after it?").join("\n");
    assert!(asked.contains("esc-1"), "{asked}");
    let answered = world.line("uma: answer esc-1 me").join("\n");
    assert!(!answered.contains('!') && !answered.contains("REQUEST"), "{answered}");
}

#[test]
fn an_answer_that_cannot_be_given_leaves_its_question_open_and_changes_nothing() {
    let script = "human uma\nagent a\numa: send a T-1 look around\na: take\na: finish all quiet\n";
    let (_, mut world) = play(script, Broker::Whole);
    world.line("a: escalate ref=T-1 which region?");
    world.line("uma: stop T-1");
    let before = world.log.len();
    let refused = world.line("uma: answer esc-1 eu").join("\n");
    assert!(refused.contains("! "), "{refused}");
    let recorded: Vec<_> = world.log[before..].iter().map(|entry| &entry.fact).collect();
    assert!(recorded.iter().all(|fact| matches!(fact, Fact::Refused(_))), "{recorded:?}");
    world.line("uma: resume T-1");
    let answered = world.line("uma: answer esc-1 eu").join("\n");
    assert!(answered.contains("uma -> a REQUEST T-1"), "{answered}");
}
