//! The agent programs that Lastword knows. All that it knows of one stands in that program's file, and [`ALL`] lists them.
//!
//! Each is started so that it asks before it acts, and without its own channels to other sessions: what agents tell each
//! other there has no depth, no budget and no log.

use std::path::{Path, PathBuf};

use agent_client_protocol_schema::v1::Meta;
use lastword_client::wire::Usage;
use serde_json::Value;

use crate::claude::{self, CLAUDE};
use crate::codex::CODEX;
use crate::configuration::File;
use crate::gemini::GEMINI;
use crate::opencode::OPENCODE;
use crate::output::{Flags, Format};
use crate::private::PrivateFolder;
use crate::settings::{Driver, Settings};

/// All programs, in the order in which they are told of.
pub static ALL: [&AgentProgram; 4] = [&CLAUDE, &CODEX, &OPENCODE, &GEMINI];

/// Programs that start another one, which is named in their arguments.
const LAUNCHERS: [&str; 7] = ["bun", "bunx", "env", "node", "npx", "pnpm", "timeout"];

/// An agent program.
#[derive(Debug)]
pub struct AgentProgram {
    /// Its name for its users.
    pub name: &'static str,
    /// The command that starts it, whose name is that of its launcher and of its option, too.
    pub command: Command,
    /// The command that starts it behind an ACP adapter; `None` if it speaks ACP itself.
    pub adapter: Option<Command>,
    /// The variables by which what it starts knows it.
    pub variables: &'static [&'static str],
    /// Turns off its channels in a run by the command driver. Its own arguments begin at this place.
    pub(crate) start: fn(&mut Settings, usize),
    /// Returns the flags that ask for machine output; `None` if its own arguments choose an output without usage.
    pub(crate) flags: fn(&[String]) -> Option<Flags>,
    /// Returns the form of its machine output, with the model that its arguments name.
    pub(crate) output: fn(String) -> Box<dyn Format>,
    /// What its hooks name as the transcript of a session, if that has the usage of each model request.
    pub(crate) transcript: Option<Transcript>,
    /// How it speaks ACP, itself or behind its adapter.
    pub(crate) acp: Acp,
    /// The files in the working directory that `lastword init` changes; the first one lists the MCP servers.
    pub files: &'static [File],
    /// What `lastword init` changes, in words.
    pub changes: &'static str,
    /// Returns the file of the whole machine that earlier versions of `lastword init` changed.
    pub earlier_file: fn() -> Option<PathBuf>,
    /// What the user does next, once the files are written.
    pub next: &'static str,
    /// The assignment by which a user gives one session an agent's token.
    pub token: &'static str,
    /// Returns the channels past the broker that the configuration of this folder and of the user's home leaves on.
    pub open_channels: fn() -> Vec<String>,
    /// The options that resume a session.
    pub resume: Resume,
}

impl AgentProgram {
    /// Returns the option of `lastword init` that configures it.
    #[must_use]
    pub fn option(&self) -> String {
        format!("--{}", self.command.names[0])
    }

    /// Returns its commands.
    pub fn commands(&self) -> impl Iterator<Item = &Command> {
        [&self.command].into_iter().chain(&self.adapter)
    }
}

/// A command that starts a program.
#[derive(Debug)]
pub struct Command {
    /// The names of its file and of its package; the first one is looked for in `PATH`.
    pub names: &'static [&'static str],
    /// The npm package that installs it.
    pub package: &'static str,
    /// The version that was tried, the same as that of the tests with real programs.
    pub tried: &'static str,
    /// How `lastword run` holds its calls.
    pub held: &'static str,
}

/// The transcript of a session: one JSON value a line.
#[derive(Debug)]
pub(crate) struct Transcript {
    pub(crate) form: fn() -> Box<dyn Format>,
    /// Returns whether a line says that the user broke the turn off; `None` if it says nothing of it.
    pub(crate) breaks_off: fn(&Value) -> Option<bool>,
}

/// How a program speaks ACP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acp {
    /// Turns off its channels, and makes it ask by its settings unless it runs unheld.
    pub(crate) start: fn(&mut Settings),
    /// Overrides what its user and the project allow in a held run, by the strongest layer that the program has. Files that
    /// it needs are made in the folder. Fails if it would run calls unasked, and nothing overrides that.
    pub(crate) hold: fn(&mut Settings, &PrivateFolder) -> Result<(), String>,
    /// Returns the `_meta` of a new or loaded session, which carries settings that no argument takes. Fails if something
    /// decides on calls that are to be held.
    pub(crate) session_meta: fn(&Settings) -> Result<Option<Meta>, String>,
    /// Returns the tokens that the `_meta` of a response reports, in place of the protocol's own member.
    pub(crate) meta_usage: fn(&Meta) -> Option<Usage>,
    /// Returns the name of a tool that the `_meta` of a call reports.
    pub(crate) meta_tool: fn(&Meta) -> Option<&str>,
    pub(crate) token: SessionToken,
    pub(crate) usage: AcpUsage,
    /// Whether a running prompt is metered by the size of its context.
    pub(crate) metered: bool,
    /// Whether settings make it ask. Such a program reports no modes.
    pub(crate) asks_by_settings: bool,
}

impl Acp {
    /// What is assumed of a program that isn't known.
    pub(crate) const UNKNOWN: Self = Self {
        start: |_| {},
        hold: |_, _| Ok(()),
        session_meta: |_| Ok(None),
        meta_usage: |_| None,
        meta_tool: |_| None,
        token: SessionToken::File,
        usage: AcpUsage::Whole,
        metered: true,
        asks_by_settings: false,
    };
}

/// How a program reports the tokens of a prompt over ACP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcpUsage {
    /// Those of all its model requests, or none at all.
    Whole,
    /// Those of all its model requests but the ones for session titles: too few, by little.
    WithoutTitles,
    /// Those of its last model request.
    LastRequest,
}

/// How the MCP servers of an ACP session carry the agent's token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionToken {
    /// As it is: the program keeps its session's servers in its memory.
    Text,
    /// As `${LASTWORD_TOKEN}`, which the program replaces: it passes the servers on in arguments, which every user of
    /// the machine can read.
    Variable,
    /// By the name of a file: what the program does with its session's servers isn't known.
    File,
}

/// The options of a program that resume a session.
#[derive(Debug)]
pub struct Resume {
    /// The options that resume the folder's last session, each a word or two.
    pub last: &'static [&'static [&'static str]],
    /// The options before a session's id; the first one takes the place of a word that resumes the last.
    pub id: &'static [&'static str],
}

/// A command line that starts a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    pub(crate) program: &'static AgentProgram,
    /// Where the program's own arguments begin.
    pub(crate) at: usize,
    by_adapter: bool,
}

impl Started {
    /// Recognizes a program by the file name of its command, or by the package or script that a launcher such as `npx`
    /// gets.
    pub(crate) fn of(command: &Path, args: &[String]) -> Option<Self> {
        let name = command.file_name()?.to_str()?;
        if !LAUNCHERS.contains(&name) {
            return Self::named(name, 0);
        }
        let mut launched = args.iter().take(4).enumerate();
        launched.find_map(|(at, arg)| arg.split('/').find_map(|name| Self::named(name, at + 1)))
    }

    fn named(name: &str, at: usize) -> Option<Self> {
        let name = name.split_once('@').map_or(name, |(name, _version)| name);
        ALL.into_iter().find_map(|program| {
            let by_adapter = program.adapter.as_ref().is_some_and(|adapter| adapter.names.contains(&name));
            (by_adapter || program.command.names.contains(&name)).then_some(Self { program, at, by_adapter })
        })
    }

    /// Returns whether it takes and prints text.
    pub(crate) const fn prints(&self) -> bool {
        !self.by_adapter
    }
}

/// Returns how a run with these settings speaks ACP.
pub(crate) fn acp(settings: &Settings) -> Acp {
    let started = Started::of(&settings.program, &settings.args);
    let speaks = started.filter(|started| started.by_adapter || started.program.adapter.is_none());
    speaks.map_or(Acp::UNKNOWN, |started| started.program.acp)
}

/// Adds what a known program needs to its arguments and environment.
pub(crate) fn prepare(settings: &mut Settings) {
    match settings.driver {
        Driver::A2a => {}
        Driver::Acp => (acp(settings).start)(settings),
        Driver::Command => {
            if let Some(started) = Started::of(&settings.program, &settings.args).filter(Started::prints) {
                (started.program.start)(settings, started.at);
            }
        }
    }
}

/// Returns the known program that a run with these prepared settings starts as a command, unless it asks before it edits a file.
pub(crate) fn edits_unasked(settings: &Settings) -> Option<&'static AgentProgram> {
    if settings.driver != Driver::Command {
        return None;
    }
    let started = Started::of(&settings.program, &settings.args).filter(Started::prints)?;
    let asks = settings.args.iter().any(|arg| arg.starts_with(claude::OWN_SETTINGS));
    (!asks).then_some(started.program)
}

/// Adds to a program that runs held over ACP what overrides its user's and the project's allowances.
///
/// # Errors
/// It would run calls unasked, and nothing overrides that; or a file can't be made.
pub(crate) fn hold(settings: &mut Settings, folder: &PrivateFolder) -> Result<(), String> {
    if settings.unheld { Ok(()) } else { (acp(settings).hold)(settings, folder) }
}

/// Settings for tests.
#[cfg(test)]
pub(crate) mod testing {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use crate::settings::{Driver, Input, Restart, Settings, UsageSource};
    use crate::usage::Prices;

    /// Returns the settings for a command line.
    pub(crate) fn settings(driver: Driver, line: &str) -> Settings {
        let mut words = line.split(' ').map(ToOwned::to_owned);
        Settings {
            driver,
            program: words.next().unwrap().into(),
            args: words.collect(),
            env: BTreeMap::new(),
            cwd: ".".into(),
            input: Input::Prompt,
            usage: UsageSource::Program,
            prices: Prices::default(),
            concurrency: 1,
            deadline: Duration::ZERO,
            grace: Duration::ZERO,
            progress: Duration::ZERO,
            restart: Restart::Never,
            backoff: Duration::ZERO,
            allow: Vec::new(),
            unheld: true,
            remote_token: None,
            lastword: "lastword".into(),
        }
    }

    /// Returns the settings of a run that was prepared.
    pub(crate) fn prepared(driver: Driver, line: &str) -> Settings {
        let mut settings = settings(driver, line);
        super::prepare(&mut settings);
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_edits_unasked_is_known_from_its_command() {
        let unasked = |driver, line| edits_unasked(&testing::prepared(driver, line)).map(|program| program.name);
        assert_eq!(unasked(Driver::Command, "codex exec"), Some("Codex"));
        assert_eq!(unasked(Driver::Command, "opencode run"), Some("opencode"));
        assert_eq!(unasked(Driver::Command, "npx @google/gemini-cli -p"), Some("Gemini CLI"));
        assert_eq!(unasked(Driver::Command, "claude -p"), None, "its hook claims");
        assert_eq!(unasked(Driver::Command, "claude -p --settings own.json"), Some("Claude Code"));
        assert_eq!(unasked(Driver::Command, "./bot.sh"), None);
        assert_eq!(unasked(Driver::Acp, "gemini --acp"), None);
    }

    fn of(line: &str) -> Option<(&'static str, bool, usize)> {
        let mut words = line.split(' ').map(ToOwned::to_owned);
        let command = words.next().unwrap();
        let started = Started::of(Path::new(&command), &words.collect::<Vec<_>>())?;
        Some((started.program.name, started.by_adapter, started.at))
    }

    #[test]
    fn a_program_is_known_by_its_name_also_behind_a_launcher() {
        assert_eq!(of("/usr/bin/claude -p"), Some(("Claude Code", false, 0)));
        assert_eq!(of("npx -y @agentclientprotocol/claude-agent-acp@0.101.0"), Some(("Claude Code", true, 2)));
        assert_eq!(of("node /x/node_modules/@zed-industries/codex-acp/bin/codex-acp.js"), Some(("Codex", true, 1)));
        assert_eq!(of("opencode acp"), Some(("opencode", false, 0)));
        assert_eq!(of("my-agent claude"), None, "a word among the arguments of another program is no launch");
    }

    #[test]
    fn each_program_has_its_page_its_rows_and_its_versions() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_else(|_| panic!("no {path}"));
        let package: Value = serde_json::from_str(&read(".ci/agents/package.json")).unwrap();
        let pages = read("docs/agents/README.md");
        let row = |start: &str| pages.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}"));
        for program in ALL {
            let page = row(&format!("| [{}](", program.name)).split(['(', ')']).nth(1).unwrap();
            assert!(read(&format!("docs/agents/{page}")).contains(program.command.names[0]), "{page}");
            row(&format!("| {} | {} | {} |", program.name, program.command.tried, program.command.held));
            for Command { names, package: name, tried, held } in program.commands() {
                assert_eq!(package["dependencies"][name], *tried, "{name}");
                assert!(
                    pages.contains(&format!("| {tried} | {held} |")),
                    "{}: docs/agents says something else",
                    names[0]
                );
            }
        }
    }
}
