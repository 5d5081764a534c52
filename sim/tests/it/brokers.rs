//! Several brokers on one fallible log: the promises hold, and each promise notices the defect that it is there for.

use std::panic::{AssertUnwindSafe, catch_unwind};

use lastword_core::Core;
use lastword_core::rules::Off;
use lastword_sim::cluster::{Broken, Cluster, Met, Played, Scene, Wrong, play};

/// The seeds of the team, and four times those of the race: `LASTWORD_SEEDS=20000` for the long run.
fn seeds() -> u64 {
    std::env::var_os("LASTWORD_SEEDS").and_then(|s| s.to_str()?.parse().ok()).unwrap_or(100)
}

/// Plays a seed, and if it breaks a promise once more with its history.
#[track_caller]
fn keeps(setting: &Cluster, seed: u64) -> Played {
    let panics = |_| panic!("seed {seed} of {:?} panics", setting.scene);
    let played = catch_unwind(AssertUnwindSafe(|| play(setting, seed, false))).unwrap_or_else(panics);
    if !played.broken.is_empty() {
        let again = play(setting, seed, true);
        let lines = again.history.join("\n");
        panic!("{lines}\nseed {seed} of {:?} breaks {:#?}", setting.scene, again.broken);
    }
    played
}

fn campaign(scene: Scene, seeds: u64) -> Met {
    let (setting, mut met, mut facts, mut answers) = (Cluster::new(scene), Met::default(), 0, 0);
    for seed in 0..seeds {
        let played = keeps(&setting, seed);
        met.add(&played.met);
        facts += played.facts;
        answers += played.answers;
    }
    println!("{scene:?}: {seeds} seeds, {facts} facts, {answers} answers, {met:?}");
    met
}

#[test]
fn three_brokers_on_a_fallible_log_keep_every_promise() {
    let met = campaign(Scene::Team, seeds());
    // A campaign proves nothing about what never happened in it.
    for (what, count) in met.counts() {
        let never = ["stored_behind", "refused_by_total"].contains(&what);
        assert!(never || count > 0, "no history met {what}");
    }
    assert_eq!(met.stored_behind, 0, "both expectations keep an older leader's commits out of the stream");
}

#[test]
fn a_grant_raced_through_three_brokers_is_used_up_exactly() {
    let met = campaign(Scene::Race, seeds().div_ceil(4));
    assert!(met.refused_by_total > 0 && met.epochs > 0 && met.zombies > 0, "{met:?}");
}

#[test]
fn a_seed_of_brokers_played_twice_gives_the_same_facts_and_answers() {
    for scene in [Scene::Team, Scene::Race] {
        let setting = Cluster::new(scene);
        for seed in 0..20 {
            let (one, two) = (play(&setting, seed, false), play(&setting, seed, true));
            assert_eq!((one.digest, one.facts, one.answers, &one.met), (two.digest, two.facts, two.answers, &two.met));
            assert!(one.facts > 0 && one.answers > 0 && !two.history.is_empty(), "seed {seed} of {scene:?}");
        }
        assert_ne!(play(&setting, 1, false).digest, play(&setting, 2, false).digest, "the seed decides");
    }
}

#[test]
fn without_an_exclusive_lease_answers_may_be_old_and_nothing_else_breaks() {
    let setting = Cluster { wrong: Some(Wrong::GivesLease), ..Cluster::new(Scene::Team) };
    let (mut met, mut old) = (Met::default(), 0);
    for seed in 0..100 {
        let played = play(&setting, seed, false);
        met.add(&played.met);
        for Broken { promise, detail } in played.broken {
            assert_eq!(promise, "no answer is older than one before its call", "seed {seed}: {detail}");
            old += 1;
        }
    }
    println!("{old} histories with an old answer, {met:?}");
    assert!(met.fenced > 100 && met.stored_behind == 0 && old > 0, "{old}, {met:?}");
}

/// The first promise that a defect breaks, by seed.
fn found(setting: &Cluster, promise: &str) -> Option<(u64, Broken)> {
    (0..400).find_map(|seed| {
        let broken = play(setting, seed, false).broken.into_iter().find(|broken| broken.promise == promise);
        broken.map(|broken| (seed, broken))
    })
}

#[test]
fn each_promise_of_the_brokers_notices_a_defect() {
    let defects = [
        (Wrong::WeakFence, "every released answer shows what is in the log"),
        (Wrong::WeakFenceReadersKeepAll, "no record of an old epoch counts behind a new one"),
        (Wrong::ReleasesEarly, "every released answer shows what is in the log"),
        (Wrong::UnknownIsWritten, "every released answer shows what is in the log"),
        (Wrong::UnknownIsForgotten, "nothing is in flight once nothing fails"),
        (Wrong::UnknownIsRepeated, "positions have no gap and none is used twice"),
        (Wrong::SkipsReplay, "positions have no gap and none is used twice"),
        (Wrong::KeepsJudged, "facts alone rebuild the same state on every broker"),
        (Wrong::IgnoresLease, "no answer is older than one before its call"),
        (Wrong::ChecksLeaseFirst, "no answer is older than one before its call"),
        (Wrong::EpochsUnfenced, "an epoch has the records of one leader"),
    ];
    let mut missed = Vec::new();
    for (wrong, promise) in defects {
        let setting = Cluster { wrong: Some(wrong), ..Cluster::new(Scene::Team) };
        match found(&setting, promise) {
            Some((seed, broken)) => println!("{wrong:?}: seed {seed}, {}", broken.detail),
            None => missed.push((wrong, promise, broken_by(&setting))),
        }
    }
    assert!(missed.is_empty(), "no seed showed {missed:#?}");
}

/// What a defect breaks, if it isn't what it should.
fn broken_by(setting: &Cluster) -> Vec<(u64, Broken)> {
    (0..10).flat_map(|seed| play(setting, seed, false).broken.into_iter().map(move |broken| (seed, broken))).collect()
}

#[test]
fn the_promises_of_the_brokers_notice_a_core_that_lacks_a_rule() {
    let defects = [
        (Scene::Team, "idempotency", "an acknowledged message is in the log exactly once"),
        (Scene::Team, "late_answers", "a finish settles the request of its own turn"),
        (Scene::Team, "warned_once", "a crossing is warned about once"),
        (Scene::Team, "forwarding", "every open request waits for whom it should"),
        (Scene::Race, "grant_messages", "the raced grant is used up exactly"),
    ];
    let mut missed = Vec::new();
    for (scene, rule, promise) in defects {
        let core = Core::without(Off::named(rule).unwrap());
        let setting = Cluster { core, saves: false, ..Cluster::new(scene) };
        if found(&setting, promise).is_none() {
            missed.push((rule, promise, broken_by(&setting)));
        }
    }
    assert!(missed.is_empty(), "no seed showed {missed:#?}");
}
