//! `lastword init`: writes a configuration file, or adds Lastword to an agent program's configuration.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};

use serde_json::json;

use super::Context;
use super::init_clients::{Program, set_up};
use crate::config::{CONFIG_FILE, DATA_DIR, LISTEN};
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Configure Claude Code in this folder: .mcp.json, and hooks in .claude/settings.local.json.
    #[arg(long)]
    claude: bool,
    /// Configure Codex: config.toml in CODEX_HOME or ~/.codex.
    #[arg(long)]
    codex: bool,
    /// Configure opencode in this folder: opencode.json.
    #[arg(long)]
    opencode: bool,
    /// Print the changes without writing them.
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(args: &Args, cx: &Context) -> Result<(), Failure> {
    let programs = [(args.claude, Program::Claude), (args.codex, Program::Codex), (args.opencode, Program::Opencode)];
    let programs: Vec<Program> = programs.into_iter().filter(|(wanted, _)| *wanted).map(|(_, p)| p).collect();
    if programs.is_empty() {
        return configuration(cx);
    }
    let mut changes = Vec::new();
    for program in programs {
        changes.extend(set_up(program, args.dry_run, cx)?);
    }
    cx.out.show(&changes, |changes, _| changes.iter().map(super::init_clients::Change::words).collect())
}

fn configuration(cx: &Context) -> Result<(), Failure> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(CONFIG_FILE).map_err(|error| {
        if error.kind() == ErrorKind::AlreadyExists {
            Failure::refused(format!("{CONFIG_FILE} already exists")).hint("edit it, or move it away first")
        } else {
            Failure::unavailable(format!("{CONFIG_FILE}: {error}"))
        }
    })?;
    file.write_all(template().as_bytes())?;
    cx.out.show(&json!({ "written": CONFIG_FILE }), |_, _| {
        format!(
            "wrote {CONFIG_FILE}\nnext: `lastword serve`, and in another terminal `lastword agent add NAME`\n\
             keep {DATA_DIR}/ out of version control: it holds the log and the operator's token"
        )
    })
}

fn template() -> String {
    format!(
        "# Lastword. Flags and LASTWORD_* variables win over this file; paths are relative to it.\n\
         # data = \"{DATA_DIR}\"\n\
         # listen = \"{LISTEN}\"\n\
         # hosts = [\"lastword.example\"]         # names under which clients call it\n\
         # url = \"http://{LISTEN}\"        # for clients of a server elsewhere\n\
         # token_file = \"me.token\"               # for clients\n\
         # observe = [\"pair_rate\"]               # guards that only record what they would refuse\n\
         # agent = [{{ name = \"echo\", command = \"cat\" }}]  # what `lastword serve --with-agents` runs\n\
         # approval = [{{ tool = \"Bash(git log*)\", decision = \"allow\" }}]   # held calls that are allowed without a decision\n\
         # notify = [{{ name = \"desktop\", command = [\"notify-send\", \"{{title}}\", \"{{text}}\"] }}]   # notifies humans of pending decisions\n\
         # schedule = [{{ name = \"nightly\", cron = \"0 2 * * *\", to = \"echo\", body = \"Run the tests.\" }}]   # recurring requests\n\
         \n\
         # Limits that differ from their defaults; `lastword limits` lists and explains them all.\n\
         [limits]\n\
         # depth_max = 5\n\
         # grant_messages_max = 64\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, Global, Settings};

    #[test]
    fn the_file_that_init_writes_is_read_with_all_of_its_lines_in_force() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(CONFIG_FILE);
        // Users uncomment lines that hold an assignment, so each must be valid.
        let uncomment = |line: &str| match line.strip_prefix("# ") {
            Some(rest) if rest.contains(" = ") => format!("{rest}\n"),
            Some(_) | None => format!("{line}\n"),
        };
        let in_force: String = template().lines().map(uncomment).collect();
        assert!(in_force.contains("\ndepth_max = 5"), "{in_force}");
        for text in [template(), in_force] {
            std::fs::write(&path, text).unwrap();
            let global = Global { config: Some(path.clone()), ..Global::default() };
            Settings::resolve(&global, &Environment::default()).unwrap();
        }
    }
}
