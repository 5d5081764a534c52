//! `lastword explain`: what a refusal means and what to do instead.

use lastword_proto::Code;
use lastword_proto::limits::LIMITS;
use serde_json::{Value, json};

use super::Context;
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A code (`depth_cap`), a rule (`D2`) or a limit (`depth_max`); all codes without one.
    what: Option<String>,
}

pub(crate) fn run(args: &Args, cx: &Context) -> Result<(), Failure> {
    let what = args.what.as_deref();
    let wanted = |names: [&str; 2]| what.is_none_or(|what| names.iter().any(|name| name.eq_ignore_ascii_case(what)));
    let codes: Vec<Code> = Code::ALL.iter().copied().filter(|code| wanted([code.word(), code.rule()])).collect();
    let limits: Vec<_> = LIMITS.iter().filter(|row| what.is_some() && wanted([row.name, row.rule])).collect();
    if codes.is_empty() && limits.is_empty() {
        return Err(Failure::usage(format!("{:?} is no code, rule or limit", what.unwrap_or_default()))
            .hint("`lastword explain` lists the codes, `lastword limits` the limits"));
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
            format!(
                "{} ({}, HTTP {})\n    {}.\n    {}",
                code.word(),
                code.rule(),
                code.http_status(),
                code.title(),
                code.hint()
            )
        });
        let limits =
            limits.iter().map(|row| format!("{} = {} ({})\n    {}", row.name, row.default, row.rule, row.meaning));
        codes.chain(limits).collect::<Vec<_>>().join("\n")
    })
}
