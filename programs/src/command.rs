//! The command driver: one process per delivery, text in, text out.

use std::collections::VecDeque;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use lastword_client::Client;
use lastword_client::wire::{Delivery, StoredMessage};
use lastword_facts::{FinishStatus, MessageType};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::output::{Machine, Reader};
use crate::process::{self, DRAIN, Group};
use crate::run::{Ended, Run, RunnerContext};
use crate::settings::{Input, UsageSource};
use crate::watch::stopped;
use crate::wording::{self, Memory};

/// The exit code (`EX_TEMPFAIL`) with which a command rejects a request, so that another agent that serves the action
/// is tried.
const REJECTED: i32 = 75;

/// Precedes the standard error of a command that failed.
const STDERR: &str = "The end of its standard error:";

/// Most earlier messages that a prompt repeats.
const EARLIER_MAX: usize = 16;

/// Runs the command for one delivery.
pub(crate) async fn run(shared: &RunnerContext, run: &mut Run) -> Ended {
    let settings = &shared.settings;
    let by_args = settings.message_in_args();
    let earlier =
        if settings.wants_prompt(&run.delivery) { earlier(&run.client, &run.delivery).await } else { Vec::new() };
    let machine = match settings.usage {
        UsageSource::Program => Machine::recognize(&settings.program, &settings.args),
        UsageSource::Text => None,
    };
    // The flags are placed before the placeholders are filled in: a message must not be taken for a flag.
    let args = machine.as_ref().map_or_else(|| settings.args.clone(), |machine| machine.args(settings.args.clone()));
    let mut command = process::command(settings);
    command.args(args.iter().map(|arg| wording::fill(arg, &run.delivery, &earlier)));
    identify(&mut command, shared, run);
    if by_args {
        command.stdin(Stdio::null());
    }
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ended::failed(format!("can't start {}: {error}", settings.program.display())),
    };
    let input = match settings.input {
        _ if by_args => String::new(),
        Input::Message if !wording::goes_on(&run.delivery) => run.delivery.message.body.clone(),
        Input::Message | Input::Prompt => wording::prompt(&run.delivery, Memory::Fresh, None, &earlier),
    };
    let reader = Arc::new(Mutex::new(machine.as_ref().map(Machine::reader)));
    let Some((status, (bytes, total), said)) = attend(shared, run, child, input, &reader).await else {
        return Ended::failed("it has no output");
    };
    let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(reader) = reader.as_mut().filter(|reader| !reader.understood()) {
        // Some programs print one object over several lines.
        reader.line(&bytes);
    }
    let usage = reader.as_ref().and_then(|reader| reader.usage(&settings.prices));
    let translated = reader.filter(|reader| reader.understood() && machine.is_some_and(|m| m.translates()));
    let ended = match translated {
        Some(reader) => {
            let said = if said.is_empty() { reader.error().unwrap_or_default() } else { &said };
            outcome(&status, reader.answer(), said)
        }
        None => outcome(&status, answer(&bytes, total), &said),
    };
    Ended { usage, ..ended }
}

/// How a command ended, the start of its output with its whole length, and the end of its standard error.
type Output = (std::io::Result<ExitStatus>, (Vec<u8>, u64), String);

/// Feeds the command's input and reads its output until it ends or has to end; `None` if it has no output.
async fn attend(
    shared: &RunnerContext,
    run: &mut Run,
    mut child: Child,
    input: String,
    reader: &Arc<Mutex<Option<Reader>>>,
) -> Option<Output> {
    let settings = &shared.settings;
    let group = Group::of(&child, shared.guard);
    let said = Arc::new(Mutex::new(String::new()));
    let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (stdout, stderr) = (streams.1?, streams.2?);
    let write = async move {
        if let Some(mut stdin) = streams.0 {
            // A command need not read its standard input, so a broken pipe isn't a failure.
            let _unread = stdin.write_all(input.as_bytes()).await;
        }
    };
    let last = Arc::clone(&said);
    let keep = move |text: &str| text.clone_into(&mut last.lock().unwrap_or_else(PoisonError::into_inner));
    let (lines, meter, prices) = (Arc::clone(reader), run.meter(), &settings.prices);
    let each = move |line: &[u8]| {
        if let Some(reader) = lines.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            reader.line(line);
            meter.report(reader.usage(prices));
        }
    };
    let bytes_max = shared.limits.body_bytes_max;
    let mut pipes = std::pin::pin!(async {
        let (_, output, ()) = tokio::join!(write, process::head(stdout, bytes_max, each), process::tail(stderr, keep));
        output
    });
    let mut output = None;
    let status = loop {
        // Writing, reading and waiting run side by side: a command that fills its output before it reads its input
        // would block otherwise.
        tokio::select! {
            read = &mut pipes, if output.is_none() => output = Some(read),
            status = child.wait() => {
                group.end(settings.grace).await;
                break status;
            }
            _ = stopped(&mut run.run_status) => break process::end(&mut child, group, settings.grace).await,
        }
    };
    // The group is gone; only a process that left the group can still hold the pipes open.
    if output.is_none() {
        output = timeout(DRAIN, pipes).await.ok();
    }
    let said = said.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Some((status, output.unwrap_or_default(), said))
}

/// Returns the task's messages before the answer just delivered, oldest first: the requests to the agent and those it
/// sent. A command keeps no memory between runs.
async fn earlier(client: &Client, delivery: &Delivery) -> Vec<StoredMessage> {
    let mut said = VecDeque::new();
    let mut answer = delivery.message.clone();
    while answer.kind == MessageType::Response && said.len() < EARLIER_MAX {
        let Some(id) = &answer.in_reply_to else { break };
        let asked = match client.message(id).await {
            Ok(asked) => asked,
            // It answers a question to a human, which is no message.
            Err(_) => match opening(client, &answer).await {
                Some(request) => request,
                None => break,
            },
        };
        said.push_front(asked.clone());
        // It opened a run of this agent that was held; the delivery is to go on from there.
        if asked.to == delivery.message.to {
            answer = asked;
            continue;
        }
        let Some(cause) = asked.cause else { break };
        let Ok(cause) = client.message(&cause).await else { break };
        said.push_front(cause.clone());
        answer = cause;
    }
    said.into()
}

/// Returns the request of the task that a message belongs to.
async fn opening(client: &Client, message: &StoredMessage) -> Option<StoredMessage> {
    let request = client.request_state(message.request_id.as_deref()?).await.ok()?;
    client.message(&request.message).await.ok()
}

/// Passes on the agent's own token and the delivery's facts, for tools that the command calls.
fn identify(command: &mut Command, shared: &RunnerContext, run: &Run) {
    process::equip(command, &shared.broker);
    command.envs(wording::variables(&run.delivery));
}

fn answer(bytes: &[u8], total: u64) -> String {
    let text = String::from_utf8_lossy(bytes).trim_end().to_owned();
    if total > bytes.len() as u64 { format!("{text}\n[cut: the answer had {total} bytes]") } else { text }
}

fn outcome(status: &std::io::Result<ExitStatus>, answer: String, said: &str) -> Ended {
    let code = status.as_ref().ok().and_then(ExitStatus::code);
    let ending = process::ending(status);
    let (status, reason) = match code {
        // Silence is no failure if the task waits for answers, which the broker knows.
        Some(0) if answer.is_empty() => {
            let reason = process::with_tail("the command gave no output (exit code 0)", said);
            return Ended { reason: Some(reason), ..Ended::default() };
        }
        Some(0) => return Ended { answer, ..Ended::default() },
        Some(REJECTED) => (Some(FinishStatus::Rejected), process::with_tail(&ending, said)),
        Some(_) | None => (Some(FinishStatus::Failed), process::with_tail(&ending, said)),
    };
    // The reason is one line; the requester finds the rest below the output.
    let answer = match said.lines().nth(1) {
        Some(_) if answer.is_empty() => format!("{STDERR}\n{said}"),
        Some(_) => format!("{answer}\n\n{STDERR}\n{said}"),
        None => answer,
    };
    Ended { answer, status, reason: Some(reason), usage: None }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn an_exit_code_is_a_status() {
        let of = |code: i32, answer: &str| outcome(&Ok(ExitStatus::from_raw(code << 8)), answer.to_owned(), "why");
        assert_eq!(of(0, "done").status, None, "waiting or completed, as the broker knows");
        assert_eq!(of(75, "").status, Some(FinishStatus::Rejected));
        let failed = of(3, "half");
        assert_eq!((failed.status, failed.reason.as_deref()), (Some(FinishStatus::Failed), Some("exit code 3: why")));
        let long = outcome(&Ok(ExitStatus::from_raw(256)), "half".to_owned(), "trace\n  at main\n\nError: no key\n");
        assert_eq!(long.reason.as_deref(), Some("exit code 1: Error: no key"));
        assert_eq!(long.answer, "half\n\nThe end of its standard error:\ntrace\n  at main\n\nError: no key\n");
        let killed = outcome(&Ok(ExitStatus::from_raw(9)), String::new(), "");
        assert_eq!(killed.reason.as_deref(), Some("killed by signal 9"));
    }
}
