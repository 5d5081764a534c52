//! `lastword init --claude`, `--codex`, `--opencode`, `--gemini`: the agent programs, what starts Lastword in each, and
//! whose token that is.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use clap::{Arg, ArgAction, ArgMatches, FromArgMatches};
use lastword_client::{Client, Endpoint, Token};
use lastword_facts::fact::Kind;
use lastword_facts::names::OWN_NAME;
use lastword_mcp::Selection;
use lastword_programs::{ALL, AgentProgram, File, Identity, Invocation};

use super::Context;
use crate::failure::Failure;
use crate::out::quoted;
use crate::session::{no_human_for_a_model, read_token};
use crate::text_file;
use crate::token_source::TokenSource;

/// The agent programs that a command line names.
#[derive(Clone, Debug)]
pub(super) struct Programs(pub(super) Vec<&'static AgentProgram>);

impl FromArgMatches for Programs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let named = |program: &&AgentProgram| matches.get_flag(program.command.names[0]);
        Ok(Self(ALL.into_iter().filter(named).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Programs {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.args(ALL.into_iter().map(|program| {
            let help = format!("Configure {} in this folder: {}", program.name, program.changes);
            let option = program.command.names[0];
            Arg::new(option).long(option).help(help).action(ArgAction::SetTrue).conflicts_with("profile")
        }))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

/// Returns the words of the call in a program's configuration here; `None` if it has none.
pub(super) fn configured(program: &AgentProgram) -> Result<Option<Vec<String>>, String> {
    let here = configured_here(program)?;
    let earlier = (program.earlier_file)().filter(|_| here.is_none());
    earlier.map_or(Ok(here), |file| Ok(calls(&file, &program.files[0])?.pop()))
}

/// Returns the words of the call in the configuration of this folder; empty if the entry isn't a command.
pub(super) fn configured_here(program: &AgentProgram) -> Result<Option<Vec<String>>, String> {
    let file = &program.files[0];
    Ok(calls(Path::new(file.path), file)?.pop())
}

/// Returns the words of each call in a file of this form.
pub(super) fn calls(path: &Path, form: &File) -> Result<Vec<Vec<String>>, String> {
    let failed = |problem: &dyn std::fmt::Display| format!("{}: {problem}", path.display());
    match text_file::read(path) {
        Ok(text) => (form.calls)(&text).map_err(|problem| failed(&problem)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(failed(&error)),
    }
}

/// Names the owner of a configuration's token if the server knows the token, else names the file.
pub(super) async fn owner_name(identity: &Identity, endpoint: &Endpoint) -> String {
    let file = match identity {
        Identity::Session => return "the token of each session".to_owned(),
        Identity::Agent(file) | Identity::Human(file) => file,
    };
    match owner(Path::new(file), endpoint).await {
        Ok((name, _)) => name,
        Err(_) => format!("the owner of {file}"),
    }
}

async fn owner(file: &Path, endpoint: &Endpoint) -> Result<(String, Kind), Failure> {
    let me = Client::new(endpoint, Some(Token::new(&read_token(file)?)?))?.agent(OWN_NAME).await?;
    Ok((me.name, me.kind))
}

/// Returns whose token the calls of a configuration use: that of the token file, which must be named. With its owner's name.
pub(super) async fn identity(as_human: bool, cx: &Context) -> Result<(Identity, String), Failure> {
    let TokenSource::File(file) = &cx.settings.token else {
        return Err(Failure::usage("no token file given").hint(
            "create one with `lastword agent add NAME > NAME.token`, then run lastword --token-file NAME.token init …",
        ));
    };
    let file = fs::canonicalize(file).map_err(|error| {
        Failure::usage(format!("{}: {error}", file.display()))
            .hint("`lastword agent add NAME > NAME.token` creates one")
    })?;
    let (name, kind) = owner(&file, &cx.endpoint()?).await?;
    let file = text(&file)?;
    match (kind, as_human) {
        (Kind::Agent, false) => Ok((Identity::Agent(file), name)),
        (Kind::Human, true) => Ok((Identity::Human(file), name)),
        (Kind::Human, false) => Err(no_human_for_a_model(&name)),
        (Kind::Agent, true) => Err(Failure::usage(format!("--as-human needs a human's token, and {file} is {name}'s"))
            .hint("leave out --as-human, or name a human's token with --token-file")),
    }
}

/// Returns the call with this identity: this executable, the server's address and the token file. `tools` are those that the
/// model sees; `None` for the default.
pub(super) fn call(identity: Identity, tools: Option<&Selection>, cx: &Context) -> Result<Invocation, Failure> {
    let lastword = text(&std::env::current_exe()?)?;
    let mut words = cx.endpoint()?.flags();
    if let Identity::Agent(file) | Identity::Human(file) = &identity {
        words.extend(["--token-file".to_owned(), file.clone()]);
    }
    let line = [&lastword].into_iter().chain(&words).map(|word| quoted(word)).collect::<Vec<_>>();
    let hook = format!("{} hook", line.join(" "));
    let human = matches!(identity, Identity::Human(_)).then(|| "--as-human".to_owned());
    let tools = tools.into_iter().flat_map(|tools| ["--tools".to_owned(), tools.to_string()]);
    let mcp = words.into_iter().chain(["mcp".to_owned()]).chain(human).chain(tools).collect();
    Ok(Invocation { lastword, identity, mcp, hook })
}

/// Returns a path as text.
pub(super) fn text(path: &Path) -> Result<String, Failure> {
    path.to_str().map(str::to_owned).ok_or_else(|| Failure::usage(format!("{}: the path isn't UTF-8", path.display())))
}
