//! `lastword explain`: explains a refusal and what to do instead, or the state of a message, hold or conversation.

use std::collections::BTreeMap;
use std::time::Duration;

use lastword_facts::Code;
use lastword_facts::limits::{LIMITS, LimitRow};
use serde_json::{Value, json};

use super::Context;
use super::limits::{self, is_running};
use crate::explanation;
use crate::failure::Failure;
use crate::session::Authority;

/// Prefixes of the ids that the server explains.
const EXPLAINED: [&str; 6] = ["msg-", "refused-", "apr-", "esc-", "inc-", "grant-"];

/// The longest wait for the limits in force.
const ANSWER_WAIT: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Id or name: a message (`msg-12`), a refusal (`refused-12`), an approval (`apr-1`), an escalation (`esc-1`), an
    /// incident (`inc-1`), a grant (`grant-1`), a code (`depth_cap`), a rule (`D2`), a limit (`depth_max`) or the REF of
    /// a conversation [default: list all codes].
    what: Option<String>,
    /// Explain the conversation of this REF, even if a code, rule or limit has the same name.
    #[arg(long = "ref")]
    is_ref: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let what = args.what.as_deref();
    let is_id = |what: &&str| EXPLAINED.iter().any(|prefix| what.starts_with(prefix));
    let Some(id) = what.filter(|what| args.is_ref || is_id(what) || !is_known(what)) else {
        return known(what, cx).await;
    };
    let told = match cx.client(Authority::Read) {
        Ok(client) => client.explanation(id).await.map_err(Failure::from),
        Err(failure) => Err(failure),
    };
    let told = told.map_err(|failure| if is_id(&id) { failure } else { unknown(id, &failure) })?;
    cx.out.show(&told, explanation::words)
}

/// Says that a word is none of those that the command explains. Only a server knows the REFs.
fn unknown(what: &str, failure: &Failure) -> Failure {
    let asked = failure.problem.as_ref().is_some_and(|problem| problem.code == Code::UnknownRequest);
    let server = if asked { "" } else { "; no server was asked whether it is a REF" };
    Failure::usage(format!("{what:?} isn't an id, REF, code, rule or limit{server}"))
        .hint("`lastword explain` lists the codes, `lastword limits` the limits; ids look like msg-12 or refused-12")
}

/// Returns whether this is the name of a code, a rule or a limit.
fn is_known(what: &str) -> bool {
    let codes = Code::ALL.iter().flat_map(|code| [code.word(), code.rule()]);
    codes.chain(LIMITS.iter().flat_map(|row| [row.name, row.rule])).any(|name| name.eq_ignore_ascii_case(what))
}

/// Returns the values of limits in force; empty if no server answers at once.
async fn in_force(cx: &Context) -> BTreeMap<String, u64> {
    if !is_running(cx) {
        return BTreeMap::new();
    }
    let asked = tokio::time::timeout(ANSWER_WAIT, limits::in_force(cx)).await;
    asked.ok().and_then(Result::ok).into_iter().flat_map(|view| view.items).map(|row| (row.name, row.value)).collect()
}

/// Explains codes, rules and limits, which need no server. A limit has the value in force beside its default if one answers.
async fn known(what: Option<&str>, cx: &Context) -> Result<(), Failure> {
    let wanted = |names: [&str; 2]| what.is_none_or(|what| names.iter().any(|name| name.eq_ignore_ascii_case(what)));
    let codes: Vec<Code> = Code::ALL.iter().copied().filter(|code| wanted([code.word(), code.rule()])).collect();
    let limits: Vec<_> = LIMITS.iter().filter(|row| what.is_some() && wanted([row.name, row.rule])).collect();
    let in_force = if limits.is_empty() { BTreeMap::new() } else { in_force(cx).await };
    let codes_json = codes.iter().map(|code| {
        json!({ "code": code.word(), "rule": code.rule(), "status": code.http_status(), "title": code.title(), "hint": code.hint() })
    });
    let limits_json = limits
        .iter()
        .map(|row| {
            json!({ "limit": row.name, "rule": row.rule, "value": in_force.get(row.name), "default": row.default, "meaning": row.meaning })
        });
    let all: Value = codes_json.chain(limits_json).collect();
    cx.out.show(&all, |_, _| {
        let codes = codes.iter().map(|code| {
            let (status, title) = (code.http_status(), code.title());
            format!("{} ({}, HTTP {status})\n    {title}.\n    {}", code.word(), code.rule(), code.hint())
        });
        let value = |row: &LimitRow| match in_force.get(row.name) {
            Some(value) => format!("{value} in force, {} by default", row.default),
            None => format!("{} by default", row.default),
        };
        let limits =
            limits.iter().map(|row| format!("{}: {} ({})\n    {}", row.name, value(row), row.rule, row.meaning));
        codes.chain(limits).collect::<Vec<_>>().join("\n")
    })
}
