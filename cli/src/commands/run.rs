//! `lastword run`: runs an agent as a child of this program, once per delivery.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use lastword_client::{Client, Token};
use lastword_facts::names::OWN_NAME;
use lastword_programs::{Driver, Input, Runner, RunnerError, Stopping, UsageSource};
use tokio::signal::unix::{SignalKind, signal};

use super::{Context, versions};
use crate::failure::Failure;
use crate::quantity::duration;
use crate::session::{Authority, ServerAccess};
use crate::team::{Member, driver, input, report, usage};
use crate::token_source::TokenSource;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How to talk to the agent: command (text in, text out), acp (Agent Client Protocol) or a2a (an agent elsewhere, by
    /// its address).
    #[arg(long, default_value = "command", value_parser = driver)]
    driver: Driver,
    /// Name of the agent, with a human's token: registers it, or renews its token if it exists.
    #[arg(long = "as", value_name = "NAME", help_heading = "Registration")]
    name: Option<String>,
    /// Action that it serves, with --as; repeatable.
    #[arg(long = "action", value_name = "ACTION", requires = "name", help_heading = "Registration")]
    actions: Vec<String>,
    /// Group that it belongs to, with --as; repeatable.
    #[arg(long = "group", value_name = "GROUP", requires = "name", help_heading = "Registration")]
    groups: Vec<String>,
    /// Standard input of a command: message (as written) or prompt (worded for a model).
    #[arg(long, default_value = "message", value_parser = input)]
    input: Input,
    /// Token figures of a command: program (those that Claude Code, Codex, opencode or Gemini CLI reports) or text
    /// (estimated from its length).
    #[arg(long, default_value = "program", value_parser = usage)]
    usage: UsageSource,
    /// Deliveries to serve at once.
    #[arg(long, value_name = "N", default_value_t = 1)]
    concurrency: u64,
    /// Longest time that one run may take.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration, help_heading = "Time limits")]
    deadline: Duration,
    /// Time that a run gets to end before it is killed.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration, help_heading = "Time limits")]
    grace: Duration,
    /// Minimum time between two progress notes of one turn.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration, help_heading = "Time limits")]
    progress: Duration,
    /// Tool of an ACP agent that needs no approval, by the agent's own name for it, such as `mcp__lastword__*`;
    /// repeatable.
    #[arg(long, value_name = "TOOL", help_heading = "ACP agents")]
    allow: Vec<String>,
    /// Run an ACP agent in a mode in which it doesn't ask before it acts; none of its calls is held.
    #[arg(long, help_heading = "ACP agents")]
    unheld: bool,
    /// End when an ACP agent's process ends, instead of restarting it.
    #[arg(long, help_heading = "ACP agents")]
    no_restart: bool,
    /// Minimum pause before a restart; doubles with each failure.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration, help_heading = "ACP agents")]
    backoff: Duration,
    /// File with the token for an agent elsewhere.
    #[arg(long, value_name = "FILE", help_heading = "A2A agents")]
    remote_token_file: Option<PathBuf>,
    /// Working directory of the agent.
    #[arg(long, value_name = "DIR", default_value = ".")]
    cwd: PathBuf,
    /// Variable for the agent's environment; repeatable. The runner's own LASTWORD_* never reach the agent.
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// Command of the agent; its arguments may contain {message}, {prompt}, {ref}, {from} and {request_id}. With a2a, the
    /// agent's address.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is not NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    if args.name.is_none() && cx.settings.token == TokenSource::Implicit {
        return Err(Failure::usage("no agent is named").hint(
            "pass the agent's token with --token-file FILE or, with a human's token, the agent's name with --as NAME",
        ));
    }
    let named = args.name.clone();
    let member = member(args)?;
    let settings = member.settings(&cx.settings.prices)?;
    if let Err(error) = settings.check().map_err(RunnerError::from) {
        if let Ok(ServerAccess { endpoint, token }) = cx.access(Authority::Act) {
            let client = Client::new(&endpoint, Some(Token::new(&token)?))?;
            error.tell(&client, named.as_deref().unwrap_or(OWN_NAME)).await;
        }
        return Err(error.into());
    }
    let ServerAccess { endpoint, token } = cx.access(Authority::Act)?;
    let token = match named {
        Some(_) => member.enrol(&Client::new(&endpoint, Some(Token::new(&token)?))?, None).await?,
        None => token,
    };
    let report = report(cx.out, None);
    versions::report_newer(&settings.program, &report).await;
    let stopping = Stopping::default();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut running = std::pin::pin!(async {
        let runner = Runner::start(settings, &endpoint, &token, &stopping, report).await?;
        runner.run().await
    });
    loop {
        tokio::select! {
            ended = &mut running => return Ok(ended?),
            _ = terminate.recv() => stopping.stop(),
            _ = interrupt.recv() => stopping.stop(),
        }
    }
}

fn member(args: Args) -> Result<Member, Failure> {
    let mut command = args.command.into_iter();
    let program = command.next().ok_or_else(|| Failure::usage("no command is named after --"))?;
    Ok(Member {
        name: args.name.unwrap_or_default(),
        driver: args.driver,
        command: program.into(),
        args: command.collect(),
        input: args.input,
        usage: args.usage,
        env: args.env.into_iter().collect::<BTreeMap<_, _>>(),
        cwd: args.cwd,
        actions: args.actions,
        groups: args.groups,
        limits: std::collections::BTreeMap::new(),
        concurrency: args.concurrency,
        deadline: args.deadline,
        grace: args.grace,
        progress: args.progress,
        allow: args.allow,
        unheld: args.unheld,
        remote_token_file: args.remote_token_file,
        restart: !args.no_restart,
        backoff: args.backoff,
    })
}
