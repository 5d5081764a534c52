//! `lastword verify`: checks the hash chain, has the witness recount every fact, and folds the log again. A server may
//! be running.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lastword_broker::checkpoint::{FILE_CHECKPOINTS, kept, read_signed};
use lastword_core::Core;
use lastword_facts::fact::hex;
use lastword_facts::{Entry, Seq};
use lastword_store::{Anchor, DataDir, Expected};
use lastword_witness::Witness;
use serde_json::json;

use super::Context;
use super::checkpoint::public_key;
use crate::failure::Failure;
use crate::out::Out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Position and hash that an earlier run printed; the log must still contain them.
    #[arg(long, value_name = "SEQ:HASH", value_parser = anchor)]
    expect: Option<Anchor>,
    /// Public key of the log, or a file with it: the checkpoints kept in the data directory, and those of --checkpoint,
    /// must be signed by it, and the log must still have their hashes.
    #[arg(long, value_name = "KEY", help_heading = "Checkpoints")]
    key: Option<String>,
    /// File with checkpoints that were kept elsewhere; repeatable.
    #[arg(long = "checkpoint", value_name = "FILE", requires = "key", help_heading = "Checkpoints")]
    checkpoints: Vec<PathBuf>,
    /// Public key of a cosigner, or a file with it: each checkpoint of --checkpoint must bear its signature; repeatable.
    #[arg(long = "cosigner-key", alias = "witness-key", value_name = "KEY", requires = "checkpoints")]
    #[arg(help_heading = "Checkpoints")]
    cosigner_keys: Vec<String>,
    /// First position of an epoch that you began with a restore: what that restore replaced isn't missed; repeatable.
    #[arg(long, value_name = "SEQ", help_heading = "Checkpoints")]
    restored: Vec<u64>,
}

pub(crate) fn run(args: &Args, cx: &Context) -> Result<(), Failure> {
    let (kept, named) = signed(args, &cx.settings.data)?;
    let newest = kept.iter().chain(&named).map(|anchor| anchor.at.0).max();
    let signed = kept.len() + named.len();
    let anchors = args.expect.into_iter().chain(named).collect();
    let expected = Expected { anchors, kept, restored: args.restored.iter().copied().map(Seq).collect() };
    let mut recount = Recount::default();
    let bar = bar(&cx.out);
    let store = DataDir::at(&cx.settings.data);
    let verified = store.verify(expected, &mut |_, entry| recount.see(&entry), &mut |at, of| {
        bar.set_length(of.0);
        bar.set_position(at.0);
    });
    bar.finish_and_clear();
    let verified = verified?;
    let (at, hash) = (verified.end.at.0, hex(&verified.end.hash));
    let unread = verified.unread.map(|at| at.0);
    let mut report = json!({ "entries": verified.entries, "rows": verified.rows, "seq": at, "hash": hash, "unread_through": unread });
    if let Some(newest) = newest {
        report["checkpoints"] = json!({
            "signed": signed, "newest": newest, "replaced": verified.replaced, "uncompared": verified.uncompared,
        });
    }
    cx.out.show(&report, |_, _| {
        let found = unread.map_or_else(
            || "every hash holds, and the witness finds every promise kept".to_owned(),
            |unread| {
                let first = unread + 1;
                format!(
                    "every hash holds; what is before {first} was not read, because files of the archive are not here, and \
                     so the witness recounted nothing"
                )
            },
        );
        let checkpoints = newest.map(|newest| {
            let replaced = match verified.replaced {
                0 => String::new(),
                replaced => format!("; {replaced} in a part that a restore replaced"),
            };
            let uncompared = match verified.uncompared {
                0 => String::new(),
                uncompared => format!("; {uncompared} in archived parts that are not here, and not compared"),
            };
            format!("\n{signed} signed checkpoints, the newest at {newest}: the log has their hashes{replaced}{uncompared}")
        });
        let checkpoints = checkpoints.unwrap_or_default();
        format!("{} entries in {} rows: {found}{checkpoints}\nend {at}:{hash}", verified.entries, verified.rows)
    })
}

/// Reads the checkpoints that the log has to contain, and verifies their signatures. With a key there must be one: a
/// check of none would say nothing. Returns those of the data directory, and those of the named files.
fn signed(args: &Args, data: &Path) -> Result<(Vec<Anchor>, Vec<Anchor>), Failure> {
    let Some(key) = &args.key else { return Ok((Vec::new(), Vec::new())) };
    let key = public_key(key)?;
    let cosigners = args.cosigner_keys.iter().map(|key| public_key(key)).collect::<Result<Vec<_>, _>>()?;
    let named = |path: &Path, error: &dyn Display| {
        Failure::refused(format!("{}: {error}", path.display()))
            .hint("keep the file unchanged; `lastword checkpoint --key` prints a log's key, on its server's machine")
    };
    let kept_path = data.join(FILE_CHECKPOINTS);
    let kept = kept(data, &key).map_err(|error| named(&kept_path, &error))?;
    let kept: Vec<Anchor> = kept.into_iter().map(|(checkpoint, _)| checkpoint.anchor).collect();
    let mut anchors = Vec::new();
    for path in &args.checkpoints {
        let text = fs::read_to_string(path).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
        let read = read_signed(&text, &key).map_err(|error| named(path, &error))?;
        if read.is_empty() {
            return Err(Failure::refused(format!("{} has no checkpoint", path.display())));
        }
        for (checkpoint, note) in read {
            for cosigner in &cosigners {
                let at = checkpoint.anchor.at.0;
                note.verify(cosigner).map_err(|error| named(path, &format!("the checkpoint at {at}: {error}")))?;
            }
            anchors.push(checkpoint.anchor);
        }
    }
    if kept.is_empty() && anchors.is_empty() {
        return Err(Failure::refused(format!("there is no checkpoint in {}", kept_path.display()))
            .hint("name the file with those that you kept: --checkpoint FILE"));
    }
    Ok((kept, anchors))
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
    Ok(Anchor { at: Seq(seq.parse().map_err(|_| wrong())?), hash: bytes })
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
