//! Changes of the policy of held calls while the server runs: rules that always allow a call, kept in the configuration.

use std::fmt;
use std::sync::Arc;

use lastword_proto::fact::Role;
use lastword_proto::ids::DAY_MS;
use lastword_proto::policy::{ApprovalRule, Policy};
use lastword_proto::wire::rfc3339;
use lastword_proto::{Code, Input};
use tokio::sync::Mutex;

use super::canonical::subjects;
use super::{Caller, Context, admitted, humans};
use crate::broker::{Live, off_thread};
use crate::error::ApiError;

/// The configuration file, as far as a human changes rules of held calls in it.
pub trait RuleBook: fmt::Debug + Send + Sync {
    /// Returns the file's path, for a human to read.
    fn place(&self) -> String;

    /// Writes a rule above all others, below a comment of one line.
    ///
    /// # Errors
    /// A sentence with the reason; the file is unchanged.
    fn add(&self, rule: &str, comment: &str) -> Result<(), String>;

    /// Removes a rule that was written so, with its comment.
    ///
    /// # Errors
    /// A sentence with the reason; the file is unchanged.
    fn remove(&self, rule: &str) -> Result<(), String>;

    /// Returns the comment of each of these rules; `None` if the file has no rule that is written so.
    fn comments(&self, rules: &[String]) -> Vec<Option<String>>;
}

/// What changes the policy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Policies {
    book: Option<Arc<dyn RuleBook>>,
    // Held over the reading and the replacing of the policy, so that no change is lost.
    turn: Arc<Mutex<()>>,
}

impl Policies {
    pub(crate) fn new(book: Option<Arc<dyn RuleBook>>) -> Self {
        Self { book, turn: Arc::default() }
    }

    /// Returns the file that rules are written to; `None` where the configuration is kept elsewhere.
    pub(crate) fn place(&self) -> Option<String> {
        self.book.as_ref().map(|book| book.place())
    }
}

/// Returns who allowed the calls of each rule in force, and when, if a human's click wrote it.
pub(crate) async fn comments(ctx: &Context) -> Result<Vec<Option<(String, String)>>, ApiError> {
    let rules = ctx.handle.query(|live| live.state.policy.rules.iter().map(written).collect::<Vec<_>>()).await?;
    let Some(book) = ctx.policies.book.clone() else { return Ok(vec![None; rules.len()]) };
    let read = move || {
        let comments = book.comments(&rules);
        Ok(comments.into_iter().zip(rules).map(|(comment, rule)| Some((rule, comment?))).collect())
    };
    Ok(off_thread(read).await?)
}

/// Returns a rule as `lastword.toml` has it.
pub(crate) fn written(rule: &ApprovalRule) -> String {
    let names: Vec<String> = rule.agents.iter().map(|name| format!("'{name}'")).collect();
    format!("[[approval]]\ntool = '{}'\nagents = [{}]\ndecision = \"{}\"\n", rule.call, names.join(", "), rule.ruling)
}

/// The calls that were held in the last week, and how many of them a rule would have decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Matched {
    /// Those that the rule matches.
    pub(crate) matched: usize,
    /// All held calls of the week.
    pub(crate) held: usize,
}

/// Returns how many of the calls held in the last seven days a rule would have decided.
pub(crate) async fn matched(ctx: &Context, rule: ApprovalRule) -> Result<Matched, ApiError> {
    let alone = Policy { rules: vec![rule] };
    let look = move |live: &Live<'_>| {
        let state = live.state;
        let week = || state.approvals.iter().filter(|(_, held)| live.now().since(held.at) < 7 * DAY_MS);
        let fits = |held: &lastword_proto::state::Approval| {
            let parts = subjects(&serde_json::from_str(&held.arguments).unwrap_or_default());
            alone.first(state.name_of(held.agent), &held.tool, &parts).is_some()
        };
        Matched { matched: week().filter(|(_, held)| fits(held)).count(), held: week().count() }
    };
    Ok(ctx.handle.query(look).await?)
}

/// Allows the calls of a rule from now on: above all other rules, and in the configuration file.
pub(crate) async fn allow(ctx: &Context, caller: Caller, rule: ApprovalRule, after: &str) -> Result<(), ApiError> {
    humans::require(ctx, caller, Role::Owner).await?;
    let book = book(ctx)?;
    let human = caller.principal.agent();
    let name = ctx.handle.query(move |live| live.state.name_of(human).to_owned()).await?;
    let day = rfc3339(ctx.handle.now()).get(..16).unwrap_or_default().replace('T', " ");
    let comment = format!("Allowed by {name} on {day} UTC, after {after}.");
    let text = written(&rule);
    let _turn = ctx.policies.turn.lock().await;
    let before = ctx.handle.query(|live| live.state.policy.clone()).await?;
    let mut policy = before.clone();
    policy.rules.retain(|known| *known != rule);
    policy.rules.insert(0, rule);
    replace(ctx, caller, policy).await?;
    keep(ctx, caller, before, move || book.add(&text, &comment)).await
}

/// Takes back a rule that a human's click wrote.
pub(crate) async fn withdraw(ctx: &Context, caller: Caller, text: &str) -> Result<(), ApiError> {
    humans::require(ctx, caller, Role::Owner).await?;
    let book = book(ctx)?;
    let _turn = ctx.policies.turn.lock().await;
    let before = ctx.handle.query(|live| live.state.policy.clone()).await?;
    let mut policy = before.clone();
    policy.rules.retain(|known| written(known) != text);
    replace(ctx, caller, policy).await?;
    let text = text.to_owned();
    keep(ctx, caller, before, move || book.remove(&text)).await
}

fn book(ctx: &Context) -> Result<Arc<dyn RuleBook>, ApiError> {
    let none = "This server has no configuration file that it can write: add the rule where its configuration is kept";
    ctx.policies.book.clone().ok_or_else(|| ApiError::new(Code::Malformed, none))
}

async fn replace(ctx: &Context, caller: Caller, policy: Policy) -> Result<(), ApiError> {
    admitted(ctx.handle.submit(Input::ChangePolicy(caller.principal, Box::new(policy))).await)?;
    Ok(())
}

/// Writes the file. The change is in force only with it: otherwise a restart would undo it without a word.
async fn keep(
    ctx: &Context,
    caller: Caller,
    before: Policy,
    write: impl FnOnce() -> Result<(), String> + Send + 'static,
) -> Result<(), ApiError> {
    let written = off_thread(move || Ok(write())).await?;
    let Err(reason) = written else { return Ok(()) };
    replace(ctx, caller, before).await?;
    Err(ApiError::new(Code::Malformed, reason))
}
