//! `lastword hook`: called by an agent program at the edges of its turns; speaks JSON with it.

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _, stdin};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lastword_client::wire::text::mended;
use lastword_client::{Client, is_transient};
use lastword_facts::names::OWN_NAME;
use lastword_programs::{Occasion, hook, hook_wait, hook_woke};
use rustix::process::getppid;
use serde_json::{Value, json};

use super::last_session::LastSession;
use super::{Context, own_terminal};
use crate::failure::{Exit, Failure};
use crate::out::Out;
use crate::session::Authority;
use crate::token_source::TokenSource;

/// The names of events in Gemini CLI, which has the same hooks, each with that in Claude Code.
const GEMINI_EVENTS: [(&str, &str); 4] = [
    ("BeforeAgent", "UserPromptSubmit"),
    ("BeforeTool", "PreToolUse"),
    ("AfterTool", "PostToolUse"),
    ("AfterAgent", "Stop"),
];
/// What Gemini CLI reports as the model's text if there is none.
const GEMINI_NOTHING: &str = "[no response text]";
/// The start of the prompt that Claude Code writes when background work has ended.
const OWN_PROMPT: &str = "<task-notification>";
/// Pause before a wait asks again whether it may replace another one.
const REPLACED: Duration = Duration::from_millis(200);
/// The exit code with which a hook of `asyncRewake` wakes its session.
const WAKES: i32 = 2;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory for session state [default: lastword/hooks in the user's state directory].
    #[arg(long, value_name = "DIR", env = "LASTWORD_HOOK_STATE")]
    state: Option<PathBuf>,
    /// Where the id of the session is kept, and the folder of its launcher.
    #[arg(long, num_args = 2, value_names = ["FILE", "FOLDER"], hide = true)]
    keep: Vec<PathBuf>,
    /// What to do: handle the event, or wait for a message and then wake the session.
    #[arg(value_enum, default_value = "handle", hide_default_value = true)]
    action: Action,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Action {
    /// Deliver, finish or renew, as the event requires.
    Handle,
    /// Wait for a message, print it on standard error and exit with 2, which wakes the session.
    Wait,
}

/// A failure must not block the agent: the exit code is never the one with which a hook does that.
pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    answer(args, cx).await.map_err(|failure| match failure.exit {
        Exit::Usage => Failure { exit: Exit::Refused, ..failure },
        Exit::Done | Exit::Refused | Exit::Unavailable | Exit::NotCompleted | Exit::NoAnswer | Exit::Bug => failure,
    })
}

async fn answer(args: Args, cx: &Context) -> Result<(), Failure> {
    let mut event = Vec::new();
    stdin().read_to_end(&mut event)?;
    let unreadable = |error| {
        Failure::usage(format!("standard input isn't a hook event: {error}"))
            .hint("this command is called by an agent program; `lastword init --claude` sets it up")
    };
    let mut occasion: Occasion = serde_json::from_str(&mended(&event)).map_err(unreadable)?;
    let gemini = GEMINI_EVENTS.into_iter().find(|(theirs, _)| *theirs == occasion.hook_event_name);
    // A session in which nothing was said yet can't be resumed.
    let says = gemini.map_or(occasion.hook_event_name.as_str(), |(_, ours)| ours);
    if let ([file, folder], "UserPromptSubmit" | "Stop", true) =
        (args.keep.as_slice(), says, is_plain(&occasion.session_id))
    {
        let last = LastSession { file: file.clone(), folder: folder.to_string_lossy().into_owned() };
        last.keep(&occasion.session_id)?;
    }
    let folder = args
        .state
        .or_else(state_folder)
        .ok_or_else(|| Failure::usage("no directory for session state").hint("name one with --state, or set HOME"))?;
    let edits = says == "PreToolUse";
    let ends_call = says == "PostToolUseFailure" || (says == "PostToolUse" && occasion.tool_name == "Bash");
    if cx.environment.in_run && !edits && !ends_call {
        return Out::note("this is a run of `lastword run`, which delivers to it; the hook does nothing");
    }
    if cx.settings.token == TokenSource::Implicit {
        return Out::note("LASTWORD_TOKEN and LASTWORD_TOKEN_FILE name no agent's token; the hook does nothing");
    }
    let client = cx.client(Authority::Act)?;
    // Without the variable the check can't fail, and the call is spared.
    if cx.environment.agent_name.is_some() && !edits {
        match client.agent(OWN_NAME).await.map(|me| cx.other_agent(&me.name)) {
            Ok(Some(reason)) => return Out::note(&reason),
            Ok(None) => {}
            // The hook notes what the broker has to hear once it is back.
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let said = match gemini {
        Some(_) if edits => {
            "PreToolUse".clone_into(&mut occasion.hook_event_name);
            hook(&client, &folder, &occasion).await.map_err(Failure::refused)?.map(for_gemini)
        }
        Some((theirs, ours)) => {
            let event = serde_json::from_str(&mended(&event)).map_err(unreadable)?;
            from_gemini(&client, &folder, occasion, &event, theirs, ours, args.action).await?
        }
        None if args.action == Action::Wait => return wait(&client, &folder, &occasion).await,
        None => {
            report_prompt(&folder, &mut occasion).await;
            hook(&client, &folder, &occasion).await.map_err(Failure::refused)?
        }
    };
    match said {
        Some(said) => cx.out.text(&format!("{said}\n")),
        None => Ok(()),
    }
}

/// Reports to the launcher that a prompt begins, or that the program's turn is over. The text of a message that woke the
/// session isn't one.
async fn report_prompt(folder: &Path, occasion: &mut Occasion) {
    let began = occasion.hook_event_name == "UserPromptSubmit";
    let ended = matches!(occasion.hook_event_name.as_str(), "Stop" | "StopFailure");
    if !(began || ended) || (began && hook_woke(folder, occasion)) {
        return;
    }
    // An Enter before it answered a dialog, or belongs to a later prompt.
    let own = occasion.prompt.starts_with(OWN_PROMPT);
    let Some((typed, problem)) = own_terminal::report(began && !own).await else { return };
    occasion.typed = began.then_some(typed);
    if let Some(why) = problem {
        // What the prompt asks for is the agent's own work then; the session goes on.
        let _told = Out::note(&format!("the launcher could not vouch for the prompt: {why}"));
    }
}

/// Prints a message on standard error once one arrives, and exits so that the session wakes.
async fn wait(client: &Client, folder: &Path, occasion: &Occasion) -> Result<(), Failure> {
    let parent = getppid();
    // A session that was killed leaves its hooks behind, with another parent.
    let gone = move || getppid() != parent;
    let Some(text) = hook_wait(client, folder, occasion, &gone).await.map_err(Failure::refused)? else {
        return Ok(());
    };
    eprint!("{text}");
    std::process::exit(WAKES)
}

/// Puts the refusal of a call in the words of Gemini CLI.
fn for_gemini(said: Value) -> Value {
    match said.pointer("/hookSpecificOutput/permissionDecisionReason") {
        Some(reason) => json!({ "decision": "deny", "reason": reason }),
        None => said,
    }
}

/// Handles an event of Gemini CLI. Its end of a turn can hold the turn open until a message arrives, which wakes the idle
/// session.
async fn from_gemini(
    client: &Client,
    folder: &Path,
    mut occasion: Occasion,
    event: &Value,
    theirs: &str,
    ours: &str,
    action: Action,
) -> Result<Option<Value>, Failure> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let waiter = folder.join(format!("{}.waiter", occasion.session_id));
    let own = std::process::id().to_string();
    ours.clone_into(&mut occasion.hook_event_name);
    if ours != "PostToolUse" && is_plain(&occasion.session_id) {
        // A wait that the user broke off goes on without its session: the newest hook ends it.
        keep(&waiter, &own)?;
    }
    let given = folder.join(format!("{}.given", occasion.session_id));
    if ours == "UserPromptSubmit" && is_plain(&occasion.session_id) {
        // A text with which a hook continued the turn comes back as a prompt, which no user typed.
        if std::fs::read_to_string(&given).is_ok_and(|given| !given.is_empty() && occasion.prompt.contains(&given)) {
            return Ok(None);
        }
        // Nothing was said since this prompt.
        keep(&said_file(folder, &occasion.session_id), "")?;
    }
    if ours == "Stop" {
        let (text, continues) = last_text(folder, &occasion, event)?;
        // Gemini CLI reports it for every other continuation only.
        occasion.stop_hook_active |= continues;
        if text == GEMINI_NOTHING {
            "the turn ended without a text".clone_into(&mut occasion.failure);
            "StopFailure".clone_into(&mut occasion.hook_event_name);
        }
        occasion.last_assistant_message = Some(text);
    }
    report_prompt(folder, &mut occasion).await;
    let mut said = hook(client, folder, &occasion).await.map_err(Failure::refused)?;
    // What would continue a turn that was interrupted is interrupted as well: the user's next prompt takes the next message.
    if action == Action::Wait && occasion.hook_event_name == "Stop" && said.is_none() {
        let parent = getppid();
        let gone = move || getppid() != parent || std::fs::read_to_string(&waiter).is_ok_and(|newest| newest != own);
        let text = loop {
            match hook_wait(client, folder, &occasion, &gone).await.map_err(Failure::refused)? {
                Some(text) => break Some(text),
                None if gone() => break None,
                // The wait that this one replaces has yet to end.
                None => tokio::time::sleep(REPLACED).await,
            }
        };
        said = text.map(|text| json!({ "decision": "block", "reason": text }));
    }
    if let Some(reason) = said.as_ref().and_then(|said| said["reason"].as_str()) {
        keep(&given, reason)?;
    }
    if let Some(name) = said.as_mut().and_then(|said| said.pointer_mut("/hookSpecificOutput/hookEventName")) {
        *name = json!(theirs);
    }
    Ok(said)
}

/// Returns the model's text since the hook before, and whether there was one for the same prompt. Gemini CLI reports the
/// text since the user's prompt, and what was said to the user is no answer to a message.
fn last_text(folder: &Path, occasion: &Occasion, event: &Value) -> Result<(String, bool), Failure> {
    let whole = event["prompt_response"].as_str().unwrap_or_default();
    if !is_plain(&occasion.session_id) {
        return Ok((whole.to_owned(), false));
    }
    let file = said_file(folder, &occasion.session_id);
    let before = std::fs::read_to_string(&file).unwrap_or_default();
    // The placeholder for no text isn't a text that another hook has seen.
    keep(&file, if whole == GEMINI_NOTHING { "" } else { whole })?;
    Ok((whole.strip_prefix(&before).unwrap_or(whole).trim().to_owned(), !before.is_empty()))
}

/// Writes a text that only this user may read: it may be a message.
fn keep(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

fn said_file(folder: &Path, session: &str) -> PathBuf {
    folder.join(format!("{session}.said"))
}

/// Returns whether a session's id can be part of a file's name.
fn is_plain(session: &str) -> bool {
    !session.is_empty() && session.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

/// Returns the folder with the state of sessions, in the user's state directory.
pub(super) fn state_folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    Some(state.join("lastword/hooks"))
}
