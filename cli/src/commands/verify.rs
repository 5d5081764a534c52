//! `lastword verify`: checks the hash chain, has the witness recount every fact, and folds the log again. A server may
//! be running.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lastword_proto::fact::hex;
use lastword_proto::{Core, Entry};
use lastword_store::witness::Witness;
use lastword_store::{Anchor, Store};
use serde_json::json;

use super::Context;
use crate::failure::Failure;
use crate::out::Out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Position and hash that an earlier run printed; the log must still contain them.
    #[arg(long, value_name = "SEQ:HASH", value_parser = anchor)]
    expect: Option<Anchor>,
}

pub(crate) fn run(args: &Args, cx: &Context) -> Result<(), Failure> {
    let mut recount = Recount::default();
    let bar = bar(&cx.out);
    let store = Store::sqlite(&cx.settings.data);
    let verified = store.verify(args.expect, &mut |_, entry| recount.see(&entry), &mut |at, of| {
        bar.set_length(of.0);
        bar.set_position(at.0);
    });
    bar.finish_and_clear();
    let verified = verified?;
    let (at, hash) = (verified.end.at.0, hex(&verified.end.hash));
    let unread = verified.unread.map(|at| at.0);
    let report = json!({ "entries": verified.entries, "rows": verified.rows, "seq": at, "hash": hash, "unread_through": unread });
    cx.out.show(&report, |_, _| {
        let found = unread.map_or_else(
            || "every hash holds, and the witness finds every promise kept".to_owned(),
            |unread| {
                let unread = unread + 1;
                format!(
                    "every hash holds; what is before {unread} was not read, because files of the archive are not here, and \
                     so the witness recounted nothing"
                )
            },
        );
        format!("{} entries in {} rows: {found}\nend {at}:{hash}", verified.entries, verified.rows)
    })
}

/// The two recounts of the rules: by the witness, a second implementation, and by the fold.
#[derive(Default)]
struct Recount {
    witness: Witness,
    core: Core,
}

impl Recount {
    fn see(&mut self, entry: &Entry) -> Result<(), String> {
        self.witness.see(entry);
        if let Some(broken) = self.witness.broken().first() {
            return Err(broken.to_string());
        }
        self.core.replay(entry).map_err(|mismatch| mismatch.to_string())
    }
}

/// Returns a progress bar on standard error; hidden without a terminal or with JSON.
pub(super) fn bar(out: &Out) -> ProgressBar {
    let target = if out.is_json() { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style =
        ProgressStyle::with_template("{bar:30} {pos}/{len} {eta}").unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(0), target).with_style(style)
}

fn anchor(text: &str) -> Result<Anchor, String> {
    let wrong = || "expected SEQ:HASH, as `lastword verify` prints it".to_owned();
    let (seq, hash) = text.split_once(':').ok_or_else(wrong)?;
    if hash.len() != 64 || !hash.is_ascii() {
        return Err(wrong());
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(hash.as_bytes().chunks(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
    }
    Ok(Anchor { at: lastword_proto::Seq(seq.parse().map_err(|_| wrong())?), hash: bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anchor_is_read_as_it_was_printed() {
        let hash = [0xa5; 32];
        let read = anchor(&format!("42:{}", hex(&hash))).unwrap();
        assert_eq!((read.at.0, read.hash), (42, hash));
        for bad in ["", "42", "42:", "x:00", "42:zz", &format!("42:{}", "é".repeat(32))] {
            assert!(anchor(bad).is_err(), "{bad}");
        }
    }
}
