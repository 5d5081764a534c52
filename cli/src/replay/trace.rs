//! The format of recorded conversations: one JSON object per line (`docs/replay.md`).

use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::Deserialize;

use crate::failure::Failure;

/// One recorded conversation.
#[derive(Debug, Deserialize)]
pub(crate) struct Trace {
    /// The conversation's name in the report.
    pub(crate) conversation_id: String,
    /// Its known class, such as `useful` or `loop`.
    #[serde(default = "unknown")]
    pub(crate) class: String,
    /// The messages, in order.
    pub(crate) messages: Vec<Said>,
}

/// One recorded message.
#[derive(Debug, Deserialize)]
pub(crate) struct Said {
    /// The speaker's name, as free text.
    pub(crate) from: String,
    /// The recipient; `None` if the message went to everyone.
    pub(crate) to: Option<String>,
    /// Its approximate length in tokens.
    #[serde(default)]
    pub(crate) approx_tokens: u64,
}

fn unknown() -> String {
    "unknown".into()
}

/// Reads a file line by line; `each` gets every conversation and the number of bytes read so far.
pub(crate) fn read(path: &Path, mut each: impl FnMut(Trace, u64) -> Result<(), Failure>) -> Result<(), Failure> {
    let file = std::fs::File::open(path).map_err(|error| {
        Failure::usage(format!("{}: {error}", path.display())).hint("pass files with one JSON object per line")
    })?;
    let mut lines = BufReader::new(file);
    let (mut line, mut number, mut bytes) = (String::new(), 0, 0);
    loop {
        line.clear();
        let length = lines.read_line(&mut line).map_err(Failure::unavailable)?;
        if length == 0 {
            return Ok(());
        }
        number += 1;
        bytes += length as u64;
        if line.trim().is_empty() {
            continue;
        }
        let trace = serde_json::from_str(&line).map_err(|error| {
            Failure::usage(format!("{}, line {number}: {error}", path.display()))
                .hint("each line is {conversation_id, class, messages: [{from, to, approx_tokens}]}")
        })?;
        each(trace, bytes)?;
    }
}
