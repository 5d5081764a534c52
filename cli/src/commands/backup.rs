//! `lastword backup`: copies the log into one file, while a server runs or not.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use futures_util::StreamExt as _;
use lastword_server::backup::back_up;
use serde_json::json;

use super::{Context, verify};
use crate::failure::Failure;
use crate::session::Authority;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File to write; `-` writes to standard output.
    file: PathBuf,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    if args.file == Path::new("-") {
        return copy(&mut io::stdout().lock(), cx).await.map(|_| ());
    }
    if args.file.exists() {
        return Err(
            Failure::usage(format!("{} exists", args.file.display())).hint("name a new file, or remove that one")
        );
    }
    let draft = args.file.with_added_extension("part");
    let mut out = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    let copied = match copy(&mut out, cx).await {
        Ok(copied) => copied,
        Err(failure) => {
            // Only what the failure left; the failure itself is what counts.
            let _gone = fs::remove_file(&draft);
            return Err(failure);
        }
    };
    out.sync_all()?;
    fs::rename(&draft, &args.file)?;
    File::open(args.file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")))?.sync_all()?;
    let bytes = args.file.metadata()?.len();
    let file = args.file.display().to_string();
    let end = copied.map(|(seq, hash)| json!({ "seq": seq, "hash": hash }));
    let report = json!({ "file": file, "bytes": bytes, "end": end });
    cx.out.show(&report, |_, _| match &end {
        Some(end) => {
            format!("{file}: {bytes} bytes, the log up to {}:{}", end["seq"], end["hash"].as_str().unwrap_or(""))
        }
        None => format!("{file}: {bytes} bytes"),
    })
}

/// Writes a backup: of the data directory, or, if an address is given, of the server there. Returns the end of the log.
async fn copy(out: &mut dyn Write, cx: &Context) -> Result<Option<(u64, String)>, Failure> {
    if cx.settings.url.is_some() {
        let mut stream = cx.client(Authority::Read)?.backup().await?;
        while let Some(bytes) = stream.next().await {
            out.write_all(&bytes?)?;
        }
        return Ok(None);
    }
    let bar = verify::bar(&cx.out);
    let copied = back_up(&cx.settings.data, out, &mut |at, of| {
        bar.set_length(of.0);
        bar.set_position(at.0);
    });
    bar.finish_and_clear();
    let copied = copied?;
    Ok(Some((copied.end.at.0, lastword_facts::fact::hex(&copied.end.hash))))
}
