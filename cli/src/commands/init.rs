//! `lastword init`: writes a configuration file, or adds Lastword to an agent program's configuration.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use lastword_facts::limits;
use lastword_mcp::Selection;
use lastword_programs::{ALL, AgentProgram, Identity, Invocation, Step};
use serde::Serialize;
use serde_json::json;

use super::Context;
use super::init_check::check;
use super::init_clients::{Programs, call, calls, configured, configured_here, identity, owner_name};
use super::init_write::{Change, Edit, plan, put, write};
use super::limits::Profile;
use crate::config::{CONFIG_FILE, DATA_DIR, LISTEN};
use crate::failure::Failure;
use crate::token_source::TokenSource;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    programs: Programs,
    /// Profile of the limits in lastword.toml: strict, or long for teams that work through many rounds.
    #[arg(long, value_enum, default_value = "strict")]
    profile: Profile,
    /// Print the changes without writing them.
    #[arg(long)]
    dry_run: bool,
    /// Use the token in LASTWORD_TOKEN or LASTWORD_TOKEN_FILE of each session, so that several agents share this folder.
    #[arg(long)]
    from_env: bool,
    /// Configure a human's token, for tools that read and decide; each decision is recorded as that human's.
    #[arg(long, conflicts_with = "from_env")]
    as_human: bool,
    /// Tools that the model sees: core (with those that the agent needs), all, or names [default: core].
    #[arg(long, value_name = "TOOLS", value_parser = Selection::parse, conflicts_with_all = ["as_human", "remove"])]
    tools: Option<Selection>,
    /// Put this agent in place of one that is already configured.
    #[arg(long, visible_alias = "force")]
    replace: bool,
    /// Remove what this command added.
    #[arg(long, conflicts_with_all = ["from_env", "as_human", "replace", "check"])]
    remove: bool,
    /// Test the configuration: start what it starts, list the tools, and ask the program itself if it is installed.
    #[arg(long)]
    check: bool,
}

/// What `init` did to one program's configuration.
#[derive(Debug, Serialize)]
struct InitReport {
    program: &'static str,
    /// The owner of the configured token; `None` if each session brings its own, or the configuration is removed.
    agent: Option<String>,
    changes: Vec<Change>,
    /// What the user does next.
    next: String,
    /// What the test of the configuration found, with `--check`.
    checks: Vec<String>,
}

impl InitReport {
    fn words(&self) -> String {
        let changes: String = self.changes.iter().map(Change::words).collect();
        let checks: String = self.checks.iter().map(|line| format!("check: {line}\n")).collect();
        let next = if self.next.is_empty() { String::new() } else { format!("{}\n", self.next) };
        format!("{changes}{next}{checks}")
    }
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let programs = args.programs.0.as_slice();
    if programs.is_empty() {
        return if args.from_env || args.as_human || args.replace || args.remove || args.check || args.dry_run {
            let [options @ .., last] = ALL.map(|program| program.option());
            Err(Failure::usage("no agent program is named").hint(format!("add {} or {last}", options.join(", "))))
        } else {
            configuration(args.profile, cx)
        };
    }
    if args.as_human
        && let Some(variable) = cx.environment.agent
    {
        return Err(Failure::refused(format!("an agent is running this command ({variable} is set)"))
            .hint("only a human gives a model their own token: run it in your own terminal"));
    }
    let mut reports = Vec::new();
    if args.remove {
        reports = removed(programs, args.dry_run)?;
    } else if args.check && only_check(&args, programs, cx)? {
        for program in programs {
            reports.push(InitReport { checks: check(program, cx).await?, ..empty(program) });
        }
    } else {
        reports = added(&args, programs, cx).await?;
    }
    cx.out.show(&reports, |reports, _| reports.iter().map(InitReport::words).collect::<String>().trim_end().to_owned())
}

/// Returns whether `--check` only tests what is there: if no token is named, or only by the environment of a session
/// whose configuration exists.
fn only_check(args: &Args, programs: &[&AgentProgram], cx: &Context) -> Result<bool, Failure> {
    let TokenSource::File(file) = &cx.settings.token else { return Ok(!args.from_env) };
    if args.from_env || args.replace || cx.environment.token_file.as_ref() != Some(file) {
        return Ok(false);
    }
    for program in programs {
        if configured_here(program).map_err(Failure::refused)?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn empty(program: &AgentProgram) -> InitReport {
    InitReport { program: program.name, agent: None, changes: Vec::new(), next: String::new(), checks: Vec::new() }
}

async fn added(args: &Args, programs: &[&'static AgentProgram], cx: &Context) -> Result<Vec<InitReport>, Failure> {
    let (identity, agent) = if args.from_env {
        (Identity::Session, None)
    } else {
        let (identity, name) = identity(args.as_human, cx).await?;
        (identity, Some(name))
    };
    let call = call(identity, args.tools.as_ref(), cx)?;
    let owner = agent.clone().unwrap_or_else(|| "the token of each session".to_owned());
    // Nothing is written before all programs have passed.
    if !args.replace {
        for program in programs {
            free(program, &call, &owner, cx).await?;
        }
    }
    let step = if args.replace { Step::Replace(&call) } else { Step::Add(&call) };
    let mut reports = Vec::new();
    for (program, changes) in changed(programs, step, args.dry_run)? {
        let checks = if args.check && !args.dry_run { check(program, cx).await? } else { Vec::new() };
        let next =
            if args.dry_run { "nothing was written (--dry-run)".to_owned() } else { next(program, &call, &owner) };
        reports.push(InitReport { agent: agent.clone(), changes, next, checks, ..empty(program) });
    }
    Ok(reports)
}

/// Words what was set up, and the next step.
fn next(program: &AgentProgram, call: &Invocation, owner: &str) -> String {
    let AgentProgram { name, next, token, command, .. } = program;
    let (command, flag) = (command.names[0], program.option());
    match &call.identity {
        Identity::Agent(_) => {
            format!("{name} in this folder now works as {owner}\nnext: {next}; `lastword init {flag} --check` tests it")
        }
        Identity::Human(_) => format!(
            "{name} in this folder now reads and decides as {owner}, a human: each of its decisions is recorded as \
             {owner}'s\nnext: {next}; let it ask you before each decision"
        ),
        Identity::Session => format!(
            "{name} in this folder now works as the agent whose token its session has\nnext: {next}; then start each \
             session with its token: {token} {command}"
        ),
    }
}

/// Refuses a configuration with another token.
async fn free(program: &AgentProgram, call: &Invocation, owner: &str, cx: &Context) -> Result<(), Failure> {
    let (name, flag) = (program.name, program.option());
    let failed = |problem: String| Failure::refused(problem).hint("fix the file, or edit Lastword's part by hand");
    let mut known: Vec<Vec<String>> = configured(program).map_err(failed)?.into_iter().collect();
    for file in &program.files[1..] {
        known.extend(calls(Path::new(file.path), file).map_err(failed)?);
    }
    for words in known {
        let known = Identity::of(&words);
        if words.is_empty() {
            return Err(Failure::refused(format!("{name} already has a server `lastword` with settings of your own"))
                .hint(format!("`lastword init {flag} --replace` puts {owner} in their place")));
        }
        if known != call.identity {
            let other = owner_name(&known, &cx.endpoint()?).await;
            return Err(Failure::refused(format!("{name} is already set up here as {other}, not as {owner}")).hint(
                format!(
                    "`lastword init {flag} --replace` puts {owner} in place of {other}; for several agents in one \
                     folder use `lastword init {flag} --from-env --replace`"
                ),
            ));
        }
    }
    Ok(())
}

/// A program, and what became of its files.
type Changed = (&'static AgentProgram, Vec<Change>);

/// Changes the files of all programs, or none; with `dry`, only reports the changes.
fn changed(programs: &[&'static AgentProgram], step: Step<'_>, dry: bool) -> Result<Vec<Changed>, Failure> {
    let plans = programs.iter().map(|program| Ok((*program, plan(program, step)?)));
    let plans = plans.collect::<Result<Vec<(_, Vec<Edit>)>, Failure>>()?;
    if !dry {
        write(&plans.iter().flat_map(|(_, edits)| edits).collect::<Vec<_>>(), put)?;
    }
    let changes = |edits: Vec<Edit>| edits.into_iter().map(|edit| edit.change).collect();
    Ok(plans.into_iter().map(|(program, edits)| (program, changes(edits))).collect())
}

fn removed(programs: &[&'static AgentProgram], dry: bool) -> Result<Vec<InitReport>, Failure> {
    for program in programs {
        let known = configured_here(program).map_err(Failure::refused)?;
        if known.is_some_and(|words| !words.iter().any(|word| word == "mcp")) {
            let file = program.files[0].path;
            return Err(Failure::refused(format!("the server `lastword` in {file} isn't what init wrote"))
                .hint("remove it by hand"));
        }
    }
    let report = |(program, changes): Changed| {
        let name = program.name;
        let next = if changes.iter().all(|change| change.diff.is_empty()) {
            format!("{name} isn't set up for Lastword in this folder")
        } else if dry {
            "nothing was removed (--dry-run)".to_owned()
        } else {
            format!("{name} no longer starts Lastword in this folder; running sessions keep it until they end")
        };
        InitReport { changes, next, ..empty(program) }
    };
    Ok(changed(programs, Step::Remove, dry)?.into_iter().map(report).collect())
}

fn configuration(profile: Profile, cx: &Context) -> Result<(), Failure> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(CONFIG_FILE).map_err(|error| {
        if error.kind() == ErrorKind::AlreadyExists {
            Failure::refused(format!("{CONFIG_FILE} already exists")).hint("edit it, or move it away first")
        } else {
            Failure::unavailable(format!("{CONFIG_FILE}: {error}"))
        }
    })?;
    file.write_all(template(profile.into()).as_bytes()).inspect_err(|_| {
        // Half of it would be taken for all of it.
        let _removed = std::fs::remove_file(CONFIG_FILE);
    })?;
    cx.out.show(&json!({ "written": CONFIG_FILE }), |_, _| {
        format!(
            "wrote {CONFIG_FILE}\nnext: `lastword serve`, and in another terminal `lastword agent add NAME`\n\
             keep {DATA_DIR}/ out of version control: it holds the log and the operator's token"
        )
    })
}

fn template(profile: limits::Profile) -> String {
    let comment = if profile == limits::Profile::Strict { "# " } else { "" };
    let other = if profile == limits::Profile::Strict { limits::Profile::Long } else { profile };
    format!(
        "# Lastword. Flags and LASTWORD_* variables win over this file; paths are relative to it.\n\
         # data = \"{DATA_DIR}\"\n\
         # listen = \"{LISTEN}\"\n\
         # hosts = [\"lastword.example\"]         # names under which clients call it\n\
         # path = \"/lw\"                           # where a reverse proxy serves it\n\
         # url = \"http://{LISTEN}\"        # for clients of a server elsewhere\n\
         # tls = \"auto\"                          # TLS with a certificate that the server makes; or tls_cert and tls_key\n\
         # tls_pin = \"server.pin\"                # for clients elsewhere: its fingerprint, or a file that holds it\n\
         # token_file = \"me.token\"               # for clients\n\
         {comment}profile = \"{other}\"                      # for teams that work through many rounds; the default is strict\n\
         # checkpoint_every_facts = 10000          # how often the server signs the log's hash\n\
         # observe = [\"pair_rate\"]               # guards that only record what they would refuse\n\
         # agent = [{{ name = \"echo\", command = \"cat\" }}]  # what `lastword serve --with-agents` runs\n\
         # approval = [{{ tool = \"Bash(git log*)\", decision = \"allow\" }}]   # held calls that are allowed without a decision\n\
         # notify = [{{ name = \"desktop\", command = [\"notify-send\", \"{{title}}\", \"{{text}}\"] }}]   # notifies humans of pending decisions\n\
         # schedule = [{{ name = \"nightly\", cron = \"0 2 * * *\", to = \"echo\", body = \"Run the tests.\" }}]   # recurring requests\n\
         \n\
         # Limits that differ from the profile; `lastword limits` lists and explains them all.\n\
         [limits]\n\
         # depth_max = 5\n\
         # grant_messages_max = 64\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Global, Settings};
    use crate::environment::Environment;

    #[test]
    fn the_file_that_init_writes_is_read_with_all_of_its_lines_in_force() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(CONFIG_FILE);
        // Users uncomment lines that hold an assignment, so each must be valid.
        let uncomment = |line: &str| match line.strip_prefix("# ") {
            Some(rest) if rest.contains(" = ") => format!("{rest}\n"),
            Some(_) | None => format!("{line}\n"),
        };
        let template = || template(limits::Profile::Strict);
        let in_force: String = template().lines().map(uncomment).collect();
        assert!(in_force.contains("\ndepth_max = 5"), "{in_force}");
        for text in [template(), in_force] {
            std::fs::write(&path, text).unwrap();
            let global = Global { config: Some(path.clone()), ..Global::default() };
            Settings::resolve(&global, &Environment::default()).unwrap();
        }
    }

    #[test]
    fn the_profile_that_init_is_asked_for_is_in_force() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(CONFIG_FILE);
        for profile in [limits::Profile::Strict, limits::Profile::Long] {
            std::fs::write(&path, template(profile)).unwrap();
            let global = Global { config: Some(path.clone()), ..Global::default() };
            let settings = Settings::resolve(&global, &Environment::default()).unwrap();
            assert_eq!(settings.limits, lastword_facts::Limits::of(profile));
        }
    }
}
