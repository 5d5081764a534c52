//! The commands: one file each, listed here once.

mod agent;
mod answer;
mod approvals;
mod approve;
mod archive;
mod ask;
mod attend;
mod audit;
mod backup;
mod bound;
mod checkpoint;
mod claims;
mod claude;
mod clock;
mod cluster;
mod codex;
mod completions;
mod console;
mod demo;
mod demo_agent;
mod discord;
#[cfg(feature = "discord")]
mod discord_init;
mod doctor;
mod escalations;
mod explain;
mod finish;
mod gemini;
mod git_guard;
mod grant;
mod guard;
pub(crate) mod help;
mod hook;
mod human;
mod inbox;
mod incidents;
mod init;
mod init_check;
mod init_clients;
mod init_write;
mod last_session;
mod launch;
mod limits;
mod limits_diff;
mod ls;
mod man;
mod mcp;
mod notify;
mod opencode;
mod own_terminal;
mod pause;
mod prompt;
mod reindex;
mod reject;
mod replay;
mod restore;
mod resume;
mod run;
mod schedule;
mod send;
mod serve;
mod sign_in;
mod sign_out;
mod stop;
mod stop_server;
mod tail;
mod target;
mod token;
mod top;
mod tree;
mod verify;
pub(crate) mod versions;

use std::ffi::OsString;
use std::future::Future;
use std::io::Read as _;

use clap::{Parser, Subcommand};
use lastword_client::wire::text::no_utf8;

use crate::config::Global;
use crate::context::Context;
use crate::failure::Failure;
use crate::out::Out;

/// A message broker for teams of AI agents in which every conversation ends.
#[derive(Debug, Parser)]
#[command(name = "lastword", version, max_term_width = 100, arg_required_else_help = true)]
#[command(
    after_help = "`lastword help COMMAND` shows the options and examples of a command.\n\nExit codes: 0 done · 1 refused · 2 wrong usage · 3 no server or no data · 4 answered, not completed · 5 no answer yet · 70 a bug"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write a lastword.toml, or add Lastword to an agent program's configuration
    Init(init::Args),
    /// Run the broker's server
    Serve(serve::Args),
    /// Run nine incidents with seven scripted agents, without guards and with them
    Demo(demo::Args),
    /// One scripted agent of the demo
    #[command(hide = true)]
    DemoAgent(demo_agent::Args),
    /// The end of a launched program whose launcher is gone
    #[command(hide = true)]
    EndProgram(guard::Args),
    /// A program in a terminal of its own
    #[command(hide = true)]
    InTerminal(own_terminal::Args),
    /// Register agents, set their limits, renew their tokens
    Agent(agent::Args),
    /// Register humans and set their roles
    Human(human::Args),
    /// Sign in as a human, by the workspace's identity provider
    SignIn(sign_in::Args),
    /// End that sign-in, at the broker and on this machine
    SignOut(sign_out::Args),
    /// Make a narrowed token of your own: some of what you may do, for a while
    Token(token::Args),
    /// Send a message
    Send(send::Args),
    /// Take the next delivery, which opens a turn
    Inbox(inbox::Args),
    /// End a turn with its final answer
    Finish(finish::Args),
    /// Ask an agent as a human and wait for the answer
    Ask(ask::Args),
    /// Start Claude Code as an agent of the team, in this terminal
    Claude(claude::Args),
    /// Start Codex as an agent of the team, in this terminal
    Codex(codex::Args),
    /// Start opencode as an agent of the team, in this terminal
    Opencode(opencode::Args),
    /// Start Gemini CLI as an agent of the team, in this terminal
    Gemini(gemini::Args),
    /// Run an agent: one run per delivery; its final output is the answer
    Run(run::Args),
    /// Connect Lastword to the bots of a Discord server
    Discord(discord::Args),
    /// Watch the workspace live and decide pending approvals and questions
    Top(top::Args),
    /// List conversations with their subjects, newest first
    Ls(ls::Args),
    /// Open the console in a browser, signed in
    Console(console::Args),
    /// Follow the event stream
    Tail(tail::Args),
    /// Show a conversation as a tree
    Tree(tree::Args),
    /// Search messages
    Audit(audit::Args),
    /// List the questions of agents to humans (escalations)
    Escalations(escalations::Args),
    /// Answer an escalation
    Answer(answer::Args),
    /// List held tool calls
    Approvals(approvals::Args),
    /// Approve a held tool call, once
    Approve(approve::Args),
    /// Reject a held tool call
    Reject(reject::Args),
    /// Pause a conversation, an agent or the workspace
    Pause(target::Args),
    /// Lift a pause, a stop or a latch
    Resume(resume::Args),
    /// Stop a conversation, an agent or the workspace
    Stop(target::Args),
    /// End the server of this folder's team
    StopServer,
    /// Extend a conversation's budget, or an agent's budget for today
    Grant(grant::Args),
    /// Claim a file or another resource, so that no other task changes it
    Claim(claims::Take),
    /// End a claim
    Release(claims::Release),
    /// List what is claimed, by whom and for which work
    Claims(claims::Args),
    /// Have git refuse commits of files that another task holds
    Guard(git_guard::Args),
    /// Schedule recurring requests by a cron expression
    Schedule(schedule::Args),
    /// List incidents: limits that tripped and hold work
    Incidents(incidents::Args),
    /// Show every limit; `limits diff` shows what differs from the defaults
    Limits(limits::Args),
    /// Show the broker's clock; `clock accept` accepts the system clock
    Clock(clock::Args),
    /// Show the most that one grant can cause
    Bound(bound::Args),
    /// Replay recorded conversations through the guards, in virtual time
    Replay(replay::Args),
    /// Rebuild the read model from the log
    Reindex(reindex::Args),
    /// Copy the log into one file, while a server runs or not
    Backup(backup::Args),
    /// Show what left the log for the archive; `archive now` moves the oldest part
    Archive(archive::Args),
    /// Go back to a backup, which begins a new epoch
    Restore(restore::Args),
    /// Verify the log's hash chain and recount it
    Verify(verify::Args),
    /// Print a signed checkpoint of the log, to be kept elsewhere, or cosign one
    Checkpoint(checkpoint::Args),
    /// Show, check and extend a cluster of nodes over NATS JetStream
    Cluster(cluster::Args),
    /// Test notification channels, and send notifications again
    Notify(notify::Args),
    /// Check the installation
    Doctor(doctor::Args),
    /// Explain a message, refusal, held call, code, rule or limit
    Explain(explain::Args),
    /// Deliver messages into an agent's interactive session (called by the agent program)
    Hook(hook::Args),
    /// Serve the MCP tools over standard input and output
    Mcp(mcp::Args),
    /// Print the primer for an agent's system prompt
    Prompt(prompt::Args),
    /// Print a shell completion script
    Completions(completions::Args),
    /// Print the man page
    Man(man::Args),
}

/// Runs the command.
pub(crate) fn run(command: Command, cx: &Context) -> Result<(), Failure> {
    match command {
        Command::Init(args) => wait(init::run(args, cx)),
        Command::Serve(args) => serve::run(args, cx),
        Command::Demo(args) => demo::run(&args, cx),
        Command::DemoAgent(args) => wait(demo_agent::run(args, cx)),
        Command::EndProgram(args) => guard::run(&args),
        Command::InTerminal(args) => own_terminal::run(&args),
        Command::Agent(args) => wait(agent::run(args, cx)),
        Command::Human(args) => wait(human::run(args, cx)),
        Command::SignIn(args) => wait(sign_in::run(args, cx)),
        Command::SignOut(args) => wait(sign_out::run(args, cx)),
        Command::Token(args) => wait(token::run(args, cx)),
        Command::Send(args) => wait(send::run(args, cx)),
        Command::Inbox(args) => wait(inbox::run(args, cx)),
        Command::Finish(args) => wait(finish::run(args, cx)),
        Command::Ask(args) => wait(ask::run(args, cx)),
        Command::Claude(args) => wait(claude::run(args, cx)),
        Command::Codex(args) => wait(codex::run(args, cx)),
        Command::Opencode(args) => wait(opencode::run(args, cx)),
        Command::Gemini(args) => wait(gemini::run(args, cx)),
        Command::Run(args) => wait(run::run(args, cx)),
        Command::Discord(args) => wait(discord::run(args, cx)),
        Command::Top(args) => wait(top::run(args, cx)),
        Command::Ls(args) => wait(ls::run(args, cx)),
        Command::Console(args) => wait(console::run(args, cx)),
        Command::Tail(args) => wait(tail::run(args, cx)),
        Command::Tree(args) => wait(tree::run(args, cx)),
        Command::Audit(args) => wait(audit::run(args, cx)),
        Command::Escalations(args) => wait(escalations::run(args, cx)),
        Command::Answer(args) => wait(answer::run(args, cx)),
        Command::Approvals(args) => wait(approvals::run(args, cx)),
        Command::Approve(args) => wait(approve::run(args, cx)),
        Command::Reject(args) => wait(reject::run(args, cx)),
        Command::Pause(args) => wait(pause::run(args, cx)),
        Command::Resume(args) => wait(resume::run(args, cx)),
        Command::Stop(args) => wait(stop::run(args, cx)),
        Command::StopServer => stop_server::run(cx),
        Command::Grant(args) => wait(grant::run(args, cx)),
        Command::Claim(args) => wait(claims::take(args, cx)),
        Command::Release(args) => wait(claims::release(args, cx)),
        Command::Claims(args) => wait(claims::list(args, cx)),
        Command::Guard(args) => wait(git_guard::run(args, cx)),
        Command::Incidents(args) => wait(incidents::run(args, cx)),
        Command::Schedule(args) => wait(schedule::run(args, cx)),
        Command::Limits(args) => wait(limits::run(args, cx)),
        Command::Clock(args) => wait(clock::run(args, cx)),
        Command::Bound(args) => bound::run(&args, cx),
        Command::Replay(args) => replay::run(&args, cx),
        Command::Reindex(args) => reindex::run(&args, cx),
        Command::Backup(args) => wait(backup::run(args, cx)),
        Command::Archive(args) => wait(archive::run(args, cx)),
        Command::Restore(args) => restore::run(&args, cx),
        Command::Verify(args) => verify::run(&args, cx),
        Command::Checkpoint(args) => wait(checkpoint::run(args, cx)),
        Command::Cluster(args) => many(cluster::run(args, cx)),
        Command::Notify(args) => wait(notify::run(args, cx)),
        Command::Doctor(args) => wait(doctor::run(args, cx)),
        Command::Explain(args) => wait(explain::run(args, cx)),
        Command::Hook(args) => wait(hook::run(args, cx)),
        Command::Mcp(args) => wait(mcp::run(args, cx)),
        Command::Prompt(args) => prompt::run(&args, cx),
        Command::Completions(args) => completions::run(&args, cx),
        Command::Man(args) => man::run(&args, cx),
    }
}

/// Runs a client's command on this thread: starting a thread pool would take longer than a send.
fn wait(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::unavailable)?;
    runtime.block_on(work)
}

/// Runs a command that blocks the thread while others of its tasks go on.
fn many(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::unavailable)?;
    runtime.block_on(work)
}

/// Returns an argument's text, or standard input's if the argument is `-` or missing.
fn text_or_stdin(text: Option<OsString>) -> Result<String, Failure> {
    let (from, bytes) = bytes_or_stdin(text)?;
    match no_utf8(&bytes) {
        Some(flaw) => Err(Failure::usage(format!("{from}: {flaw}"))),
        None => Ok(String::from_utf8_lossy(&bytes).into_owned()),
    }
}

/// Returns the text of an answer as [`text_or_stdin`] does. U+FFFD takes the place of what isn't UTF-8 (F6).
fn answer_or_stdin(text: Option<OsString>) -> Result<String, Failure> {
    bytes_or_stdin(text).map(|(_, bytes)| String::from_utf8_lossy(&bytes).into_owned())
}

fn bytes_or_stdin(text: Option<OsString>) -> Result<(&'static str, Vec<u8>), Failure> {
    if let Some(text) = text.filter(|text| text != "-") {
        return Ok(("the text", text.into_encoded_bytes()));
    }
    if std::io::IsTerminal::is_terminal(&std::io::stdin()) {
        Out::note("reads the text from the terminal; Ctrl-D on a line of its own ends it")?;
    }
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes).map_err(Failure::unavailable)?;
    Ok(("standard input", bytes))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use lastword_client::wire::{LiftStep, RefusedAt};
    use lastword_facts::{Code, Refusal};

    use super::Cli;

    #[test]
    fn every_step_that_a_refusal_names_is_a_command_of_ours() {
        let at = RefusedAt { reference: Some("T-1/2"), agent: Some("kilo"), settled: false };
        let held = ["workspace", "kilo", "T-1"].map(|on| Refusal::new(Code::Paused).about(on));
        let refusals = Code::ALL.iter().flat_map(|code| [Refusal::new(*code), Refusal::new(*code).retry_after(5)]);
        let refusals: Vec<Refusal> = refusals.chain(held).collect();
        let settled = RefusedAt { settled: true, ..at };
        let step = |refusal| [at, settled].map(|at| LiftStep::of(refusal, at));
        let steps: Vec<LiftStep> = refusals.iter().flat_map(step).flatten().collect();
        assert!(steps.len() > 12, "{steps:?}");
        for LiftStep { cli, .. } in steps {
            let parsed = Cli::try_parse_from(cli.split(' '));
            assert!(parsed.is_ok(), "{cli}: {parsed:?}");
        }
    }
}
