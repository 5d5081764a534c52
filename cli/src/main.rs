//! `lastword`: the server, the client, and the tools around the log.

mod agent_variables;
mod commands;
mod config;
mod config_file;
#[cfg(test)]
mod config_property;
mod context;
mod demo;
#[cfg(feature = "discord")]
mod discord;
mod editable_config;
mod environment;
mod explanation;
mod failure;
mod families;
mod home;
mod notify;
mod oidc;
mod out;
mod policy;
mod quantity;
mod render;
mod service;
mod session;
mod story;
mod team;
mod telemetry;
mod text_file;
mod tls;
mod token_source;
mod top;
mod tree;

use std::panic;
use std::process::ExitCode;

use clap::FromArgMatches as _;
use clap::error::ErrorKind;
use lastword_client::wire::text::no_utf8;

use crate::commands::{Cli, help};
use crate::config::Settings;
use crate::context::Context;
use crate::environment::Environment;
use crate::failure::{Exit, Failure};
use crate::out::Out;

/// mimalloc, because a message consists of many small texts that one thread allocates and another frees.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    panic::set_hook(Box::new(|info| {
        // If standard error is closed, the report is lost: no other place remains.
        let _told = out::complain(&format!("{info}"), Some("this is a bug in lastword; please report it"));
    }));
    let matches = help::command().try_get_matches().unwrap_or_else(|error| no_number(no_text(error)).exit());
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|e| e.exit());
    let environment = Environment { team: home::find(), ..Environment::read() };
    let out = Out::new(cli.global.json, &environment);
    let ended = panic::catch_unwind(panic::AssertUnwindSafe(|| {
        let settings = Settings::resolve(&cli.global, &environment)?;
        let team = settings.url.clone().unwrap_or_else(|| settings.data.display().to_string());
        let token = settings.token.clone();
        commands::run(cli.command, &Context { settings, environment, out })
            .map_err(|failure| failure.looked_in(&team).proven_by(&token))
    }));
    match ended {
        Ok(Ok(())) => Exit::Done.into(),
        Ok(Err(failure)) => tell(&out, &failure),
        Err(_) => Exit::Bug.into(),
    }
}

/// Names the argument that isn't UTF-8, if that is the error.
fn no_text(error: clap::Error) -> clap::Error {
    let arg = std::env::args_os().find(|arg| arg.to_str().is_none()).filter(|_| error.kind() == ErrorKind::InvalidUtf8);
    let flaw = arg.and_then(|arg| Some((no_utf8(arg.as_encoded_bytes())?, arg)));
    flaw.map_or(error, |(flaw, arg)| help::command().error(ErrorKind::InvalidUtf8, format!("{arg:?}: {flaw}")))
}

/// Says what a number looks like, in place of what the standard library says of its digits.
fn no_number(error: clap::Error) -> clap::Error {
    let said = error.to_string();
    let text = said
        .replace("invalid digit found in string", "it is a whole number such as 1000")
        .replace("invalid float literal", "it is a number such as 2.50");
    if text == said { error } else { clap::Error::raw(error.kind(), text.trim_start_matches("error: ")) }
}

fn tell(out: &Out, failure: &Failure) -> ExitCode {
    // If standard error is closed, the exit code still reports the failure.
    let _told = out.failure(failure);
    failure.exit.into()
}
