//! Writes the documents of the surface without the space between their tokens, as the program carries them.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let out = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo names no OUT_DIR"))?;
    for name in ["openapi.json", "asyncapi.json"] {
        let document = Path::new("../docs").join(name);
        println!("cargo:rerun-if-changed={}", document.display());
        fs::write(Path::new(&out).join(name), dense(&fs::read_to_string(document)?))?;
    }
    Ok(())
}

/// Takes the space between tokens out of JSON.
fn dense(json: &str) -> String {
    let (mut text, mut is_escaped) = (false, false);
    let kept = json.chars().filter(|c| {
        let is_kept = text || !c.is_ascii_whitespace();
        text ^= *c == '"' && !is_escaped;
        is_escaped = text && *c == '\\' && !is_escaped;
        is_kept
    });
    kept.collect()
}
