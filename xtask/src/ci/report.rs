//! What a run of CI prints.

use std::time::Duration;

use super::process::EndedStep;
use super::steps::Show;

/// Prints a step that ended: all of its output when it failed, and the lines that count when it passed.
pub(super) fn step(ended: &EndedStep) {
    let EndedStep { step, passed, output, .. } = ended;
    println!("{} {} ({})", if *passed { "passed" } else { "FAILED" }, step.name, times(ended));
    if !passed {
        println!("{output}");
        return;
    }
    match step.show {
        Show::Nothing => {}
        Show::Tests => {
            let [passed, ignored, filtered] = ["passed;", "ignored;", "filtered out;"].map(|word| count(output, word));
            println!("    {passed} tests passed, {ignored} are ignored, {filtered} are filtered out")
        }
        Show::Lines(part) => output.lines().filter(|line| line.contains(part)).for_each(|line| println!("    {line}")),
    }
}

/// Returns the sum of the numbers before a word, in the lines that end a program of tests.
fn count(output: &str, word: &str) -> u64 {
    let results = output.lines().filter_map(|line| line.strip_prefix("test result:"));
    let number = |line: &str| line.split(word).next()?.split_whitespace().last()?.parse::<u64>().ok();
    results.filter_map(number).sum()
}

/// Prints what each step took, and all of them.
pub(super) fn table(ended: &[EndedStep], wall: Duration) {
    println!("\n{:24} {:>8} {:>12}", "step", "seconds", "processor s");
    for ended in ended {
        println!("{:24} {:>8.1} {:>12.1}", ended.step.name, ended.wall.as_secs_f64(), ended.processor.as_secs_f64());
    }
    let processor: Duration = ended.iter().map(|ended| ended.processor).sum();
    println!("{:24} {:>8.1} {:>12.1}", "all", wall.as_secs_f64(), processor.as_secs_f64());
}

/// Names the steps that passed only when they ran alone: each is a condition that a busy machine misses, to be mended.
pub(super) fn late(ended: &[EndedStep]) {
    for failed in ended.iter().filter(|ended| !ended.passed) {
        println!("{} failed beside others and passed alone", failed.step.name);
    }
}

fn times(ended: &EndedStep) -> String {
    format!("{:.1} s, {:.1} processor s", ended.wall.as_secs_f64(), ended.processor.as_secs_f64())
}
