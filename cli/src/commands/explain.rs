//! `lastword explain`: explains a refusal and what to do instead, or the state of one message.

use lastword_proto::Code;
use lastword_proto::limits::LIMITS;
use serde_json::{Value, json};

use super::Context;
use crate::explanation;
use crate::failure::Failure;
use crate::session::Authority;

/// Prefixes of the ids that the server explains.
const EXPLAINED: [&str; 4] = ["msg-", "refused-", "apr-", "esc-"];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Id or name: a message (`msg-12`), a refusal (`refused-12`), an approval (`apr-1`), an escalation (`esc-1`), a
    /// code (`depth_cap`), a rule (`D2`) or a limit (`depth_max`) [default: list all codes].
    what: Option<String>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let id = args.what.as_deref().filter(|what| EXPLAINED.iter().any(|prefix| what.starts_with(prefix)));
    let Some(id) = id else { return known(args.what.as_deref(), cx) };
    let told = cx.client(Authority::Read)?.explanation(id).await?;
    cx.out.show(&told, explanation::words)
}

/// Explains codes, rules and limits without asking a server.
fn known(what: Option<&str>, cx: &Context) -> Result<(), Failure> {
    let wanted = |names: [&str; 2]| what.is_none_or(|what| names.iter().any(|name| name.eq_ignore_ascii_case(what)));
    let codes: Vec<Code> = Code::ALL.iter().copied().filter(|code| wanted([code.word(), code.rule()])).collect();
    let limits: Vec<_> = LIMITS.iter().filter(|row| what.is_some() && wanted([row.name, row.rule])).collect();
    if codes.is_empty() && limits.is_empty() {
        return Err(Failure::usage(format!("{:?} isn't an id, code, rule or limit", what.unwrap_or_default())).hint(
            "`lastword explain` lists the codes, `lastword limits` the limits; ids look like msg-12 or refused-12",
        ));
    }
    let codes_json = codes.iter().map(|code| {
        json!({ "code": code.word(), "rule": code.rule(), "status": code.http_status(), "title": code.title(), "hint": code.hint() })
    });
    let limits_json = limits
        .iter()
        .map(|row| json!({ "limit": row.name, "rule": row.rule, "default": row.default, "meaning": row.meaning }));
    let all: Value = codes_json.chain(limits_json).collect();
    cx.out.show(&all, |_, _| {
        let codes = codes.iter().map(|code| {
            let (status, title) = (code.http_status(), code.title());
            format!("{} ({}, HTTP {status})\n    {title}.\n    {}", code.word(), code.rule(), code.hint())
        });
        let limits =
            limits.iter().map(|row| format!("{} = {} ({})\n    {}", row.name, row.default, row.rule, row.meaning));
        codes.chain(limits).collect::<Vec<_>>().join("\n")
    })
}
