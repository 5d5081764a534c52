//! `lastword checkpoint`: prints a signed checkpoint of the log, to be kept elsewhere, or cosigns one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use lastword_broker::checkpoint::{Checkpoint, LogSigner, Note, PublicKey, cosigner_key, read_signed};
use lastword_broker::files::write_private;
use lastword_client::ClientError;
use lastword_facts::fact::hex;
use lastword_facts::{Code, Seq};
use serde_json::json;

use super::Context;
use super::restore::now;
use crate::failure::Failure;
use crate::session::Authority;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the public key that verifies the log's checkpoints; with --cosign, the cosigner's.
    #[arg(long)]
    key: bool,
    /// Cosign with the key in this file, made if it is missing. FILE.seen holds the checkpoint that was cosigned last: the
    /// log must still have its hash.
    #[arg(long, value_name = "FILE")]
    cosign: Option<PathBuf>,
    /// The log's public key, or a file with it. Only what this key signed is cosigned.
    #[arg(long, value_name = "KEY", requires = "cosign")]
    log_key: Option<String>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    match (args.key, args.cosign) {
        (true, Some(path)) => show_key(cosigner_key(&path)?.public(), cx),
        (true, None) if cx.settings.url.is_some() => Err(Failure::usage(
            "a server doesn't send its log's public key, because a false one would send a false key",
        )
        .hint("run this on the server's machine, without --url, and carry the key over")),
        (true, None) => show_key(LogSigner::open(&cx.settings.data)?.public(), cx),
        (false, None) => show(&signed(None, cx).await?, cx),
        (false, Some(path)) => {
            let key = args.log_key.as_deref().ok_or_else(|| {
                Failure::usage("a cosigner needs the log's public key").hint("name it with --log-key KEY")
            })?;
            show(&cosign(&path, &public_key(key)?, cx).await?, cx)
        }
    }
}

fn show_key(key: &PublicKey, cx: &Context) -> Result<(), Failure> {
    cx.out.show(&json!({ "key": key.to_string() }), |_, _| key.to_string())
}

fn show(note: &Note, cx: &Context) -> Result<(), Failure> {
    let Checkpoint { origin, anchor } = Checkpoint::of(note)?;
    let text = note.to_string();
    let report = json!({ "origin": origin, "seq": anchor.at.0, "hash": hex(&anchor.hash), "note": text });
    // With an empty line at its end, so that checkpoints that are appended to a file stay apart.
    cx.out.show(&report, |_, _| text)
}

/// Returns a public key from its text, or from the file with it.
pub(super) fn public_key(named: &str) -> Result<PublicKey, Failure> {
    let error = match named.parse() {
        Ok(key) => return Ok(key),
        Err(error) => error,
    };
    match fs::read_to_string(named) {
        Ok(text) => text.parse().map_err(|error| Failure::usage(format!("{named}: {error}"))),
        // What has a `+` is meant as a key.
        Err(_) if named.contains('+') => Err(Failure::usage(error)),
        Err(missing) => Err(Failure::usage(format!("{named}: {missing}"))),
    }
}

/// Has a checkpoint signed: by the server if an address is given, else with the key in the data directory.
async fn signed(at: Option<Seq>, cx: &Context) -> Result<Note, Failure> {
    if cx.settings.url.is_none() {
        let signer = LogSigner::open(&cx.settings.data)?;
        return signer.sign(at)?.ok_or_else(|| no_hash(at));
    }
    let text = match cx.client(Authority::Read)?.checkpoint(at.map(|at| at.0)).await {
        Err(ClientError::Refused(problem)) if at.is_some() && is_absent(problem.code) => return Err(no_hash(at)),
        answered => answered?,
    };
    let mut notes = Note::read_all(&text).map_err(|error| Failure::refused(format!("the server's answer: {error}")))?;
    notes.pop().filter(|_| notes.is_empty()).ok_or_else(|| Failure::refused("the server sent no checkpoint"))
}

fn is_absent(code: Code) -> bool {
    matches!(code, Code::EpochOver | Code::UnknownRequest)
}

fn no_hash(at: Option<Seq>) -> Failure {
    Failure::refused(match at {
        Some(at) => format!("the log has no hash at position {}", at.0),
        None => "the log is empty".to_owned(),
    })
}

/// Cosigns the log's present checkpoint, if the log still has the hash that was cosigned last.
async fn cosign(path: &Path, log: &PublicKey, cx: &Context) -> Result<Note, Failure> {
    let key = cosigner_key(path)?;
    let (now_at, mut note) = one_signed(&signed(None, cx).await?, log)?;
    let seen_path = path.with_added_extension("seen");
    let mut seen = seen(&seen_path, key.public())?;
    if let Some((then, earlier)) = seen.iter().find(|(then, _)| then.origin == now_at.origin) {
        let at = then.anchor.at;
        let again = if now_at.anchor.at == at {
            note.clone()
        } else if now_at.anchor.at > at {
            signed(Some(at), cx).await.map_err(|failure| went_back(failure, &seen_path))?
        } else {
            let ends = format!("the log ends at {}, and position {} was cosigned", now_at.anchor.at.0, at.0);
            return Err(went_back(Failure::refused(ends), &seen_path));
        };
        let (states, again) = one_signed(&again, log)?;
        if states != *then {
            let proof = path.with_added_extension("split");
            write_private(&proof, format!("{earlier}\n{again}").as_bytes())?;
            return Err(Failure::refused(format!(
                "the log shows two histories: its hash at position {} is another one than the one cosigned before",
                at.0
            ))
            .hint(format!("{} has both, each with the log's signature: keep it", proof.display())));
        }
    }
    key.sign(&mut note, now().0 / 1_000);
    seen.retain(|(then, _)| then.origin != now_at.origin);
    seen.push((now_at, note.clone()));
    let texts: Vec<String> = seen.iter().map(|(_, note)| note.to_string()).collect();
    write_private(&seen_path, texts.join("\n").as_bytes())?;
    Ok(note)
}

fn went_back(failure: Failure, seen: &Path) -> Failure {
    failure.hint(format!("if a backup was restored since, remove {}; if not, the log was cut off", seen.display()))
}

/// Returns what a note of the log states, once its signature is verified.
fn one_signed(note: &Note, log: &PublicKey) -> Result<(Checkpoint, Note), Failure> {
    let mut signed = read_signed(&note.to_string(), log)?;
    signed.pop().ok_or_else(|| Failure::refused("no checkpoint"))
}

/// Returns the checkpoints that this cosigner cosigned last, one of each log.
fn seen(path: &Path, key: &PublicKey) -> Result<Vec<(Checkpoint, Note)>, Failure> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.map_err(|error| Failure::unavailable(format!("{}: {error}", path.display())))?,
    };
    let wrong = |error: &dyn std::fmt::Display| Failure::refused(format!("{}: {error}", path.display()));
    let notes = Note::read_all(&text).map_err(|error| wrong(&error))?;
    let own = notes.into_iter().map(|note| {
        note.verify(key).map_err(|error| wrong(&error))?;
        Ok((Checkpoint::of(&note).map_err(|error| wrong(&error))?, note))
    });
    own.collect()
}
