//! Compares the guards on recorded conversations with what others do against loops, as far as the texts show it.

use std::fs;
use std::path::{Path, PathBuf};

use lastword_facts::visible::escape;
use lastword_replay::{COLUMNS, Report, read};
use serde_json::{Value, json};

mod baseline;
mod contender;
mod page;

use contender::Contender;
use page::ReplayPage;

/// What came of some recordings under each contender, and the page that shows it.
struct Compared {
    reports: Vec<(&'static str, Report)>,
    page: String,
}

impl Compared {
    fn of(files: &[PathBuf]) -> Self {
        let contenders = Contender::all();
        let mut reports = contenders.each_ref().map(|contender| (contender.name, Report::default()));
        let mut page = ReplayPage::default();
        for file in files {
            read(file, |trace, _| {
                let played = contenders.each_ref().map(|contender| (contender.name, contender.play(trace)));
                for ((_, report), (_, played)) in reports.iter_mut().zip(&played) {
                    report.add(trace, played);
                }
                page.add(trace, &played);
            })
            .unwrap();
        }
        let page = page.html(&reports.each_ref().map(|(name, _)| *name));
        Self { reports: reports.into(), page }
    }

    /// The conversations that are cut, by contender.
    fn cuts(&self) -> Vec<(&str, String)> {
        let cuts = |(name, report): &(&'static str, Report)| {
            let name = *name;
            report.cuts.iter().map(move |cut| (name, cut.to_string())).collect::<Vec<_>>()
        };
        self.reports.iter().flat_map(cuts).collect()
    }
}

fn recorded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/recorded.jsonl")
}

#[test]
fn a_loop_is_cut_and_a_review_of_many_rounds_goes_on_in_the_profile_long() {
    let compared = Compared::of(&[recorded()]);
    let cuts = compared.cuts();
    let cuts: Vec<(&str, &str)> = cuts.iter().map(|(name, cut)| (*name, cut.as_str())).collect();
    assert_eq!(
        cuts,
        [
            ("strict", "thanks (loop): depth_cap at 6 of 26, onset 2, 5 lifts to the end"),
            ("strict", "review (useful): depth_cap at 6 of 32, 5 lifts to the end"),
            ("strict", "no-texts (unknown): depth_cap at 6 of 10, 1 lifts to the end"),
            ("long", "thanks (loop): no_progress at 8 of 26, onset 2, 3 lifts to the end"),
            ("identical", "thanks (loop): identical at 7 of 26, onset 2"),
            ("alternating", "thanks (loop): alternating at 8 of 26, onset 2"),
            ("messages-20", "thanks (loop): messages-20 at 20 of 26, onset 2"),
            ("messages-20", "review (useful): messages-20 at 20 of 32"),
        ]
    );
    let of = |name: &str, class: &str, member: &str| {
        let (_, report) = compared.reports.iter().find(|(other, _)| *other == name).unwrap();
        let report: Value = json!(report);
        report["classes"][class][member].clone()
    };
    assert_eq!(
        (of("strict", "loop", "cut_after_onset"), of("strict", "loop", "cut_before_onset")),
        (json!(1), json!(0))
    );
    let held = (of("strict", "loop", "held"), of("structure", "loop", "held"));
    assert_eq!(held, (json!(1), json!(1)), "what R5 would hold is counted");
    assert_eq!(of("long", "useful", "lifts"), 0);
    assert_eq!((of("long", "useful", "conversations"), of("long", "unknown", "held")), (json!(4), json!(0)));
    // Two in a row to the same recipient are one.
    assert_eq!(of("strict", "loop", "messages"), 26);
}

#[test]
fn the_page_shows_each_conversation_and_no_markup_of_a_recording() {
    let dir = tempfile::tempdir().unwrap();
    let evil = dir.path().join("evil.jsonl");
    let text = r#"{"conversation_id":"<b>x</b>","messages":[{"from":"a","to":"b","text":"\"><script>alert(1)</script>\u202e"}]}"#;
    fs::write(&evil, text).unwrap();
    let page = Compared::of(&[recorded(), evil]).page;
    for shown in
        ["review", "thanks", "no-texts", "long: no_progress at 8, a human says yes 3 times", "strict: depth_cap at 6"]
    {
        assert!(page.contains(shown), "{shown}");
    }
    assert!(page.contains("&lt;b&gt;x") && !page.contains("<script") && !page.contains('\u{202e}'));
    assert_eq!(page.matches("title=\"onset\"").count(), 1);
}

/// Prints what came of the recordings that `LASTWORD_RECORDINGS` lists, with `:` between them, and writes the page to
/// the file that `LASTWORD_PAGE` names.
#[test]
#[ignore = "it wants recordings"]
fn the_recordings_of_a_campaign() {
    let files = std::env::var_os("LASTWORD_RECORDINGS").expect("LASTWORD_RECORDINGS lists files");
    let compared = Compared::of(&std::env::split_paths(&files).collect::<Vec<_>>());
    println!("rules | {}", COLUMNS.join(" | "));
    for (name, report) in &compared.reports {
        for row in report.rows() {
            println!("{name} | {}", escape(&row.join(" | ")));
        }
    }
    for (name, cut) in compared.cuts() {
        println!("{name}: {}", escape(&cut));
    }
    if let Some(page) = std::env::var_os("LASTWORD_PAGE") {
        fs::write(page, compared.page).unwrap();
    }
}
