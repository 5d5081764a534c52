//! Compares the guard of R5 with recorded verdicts, and lists the conversations on which they differ:
//! `cargo run --release -p lastword-sim --example no_progress -- VERDICTS CONVERSATIONS…`
//!
//! Ends with 1 if more than 3 in 1,000 conversations have another verdict, which is what another hash may change.

use std::fs::File;
use std::io::{BufReader, Error, Write as _, stdout};
use std::process::ExitCode;

use lastword_sim::no_progress::{Compared, verdicts};

fn main() -> Result<ExitCode, Error> {
    let mut args = std::env::args_os().skip(1);
    let Some(recorded) = args.next() else {
        return Err(Error::other("usage: no_progress VERDICTS CONVERSATIONS…"));
    };
    let recorded = verdicts(BufReader::new(File::open(recorded)?))?;
    let mut compared = Compared::default();
    for file in args {
        compared.add(BufReader::new(File::open(file)?), &recorded)?;
    }
    let Compared { conversations, messages, verdicts, numbers } = &compared;
    let mut out = stdout().lock();
    for difference in verdicts {
        writeln!(out, "verdict: {difference}")?;
    }
    for difference in numbers {
        writeln!(out, "numbers: {difference}")?;
    }
    writeln!(
        out,
        "{conversations} conversations, {messages} messages: {} other verdicts, {} other numbers",
        verdicts.len(),
        numbers.len()
    )?;
    Ok(ExitCode::from(u8::from(verdicts.len() as u64 * 1_000 > conversations * 3)))
}
