//! The pictures of the console in `docs/images`, taken anew of what `lastword demo --keep` leaves.

use std::path::Path;

use crate::Failed;
use crate::command::{command, command_in};

/// The pictures by the page that they show.
const PAGES: &[&str] = &["graph", "inbox", "incidents", "now", "tree", "waterfall"];
/// How they are taken: light, and as wide as a small window.
const LOOK: &str = "light-1280";
const SIZE_MAX: u64 = 150_000;

/// Takes the pictures, and reduces each to a palette.
pub(crate) fn run(_: &[&str]) -> Result<(), Failed> {
    command("cargo", &["build", "--locked", "--target-dir", "target"])?;
    command(".ci/browser/run", &["--install"])?;
    command_in(Path::new("target/browser"), "node", &["screenshots.mjs", "../pictures", LOOK])?;
    for page in PAGES {
        let picture = format!("docs/images/console-{page}.png");
        let taken = format!("target/pictures/{page}-{LOOK}.png");
        command("pngquant", &["--force", "--output", &picture, &taken])?;
        let size = std::fs::metadata(&picture)?.len();
        println!("{picture}: {size} bytes");
        if size > SIZE_MAX {
            return Err(Failed::new(format!("{picture} has more than {SIZE_MAX} bytes")));
        }
    }
    Ok(())
}
