//! The words of the protocol that a page uses, explained where they first appear and in the help.

use lastword_facts::Code;
use lastword_facts::limits::LIMITS;
use lastword_wire::Problem;
pub(super) use lastword_wire::told;
use maud::{Markup, html};

use super::parts::url;

/// A word in both numbers, and what it means to the human who reads it.
struct Term {
    one: &'static str,
    many: &'static str,
    meaning: &'static str,
}

const fn term_of(one: &'static str, many: &'static str, meaning: &'static str) -> Term {
    Term { one, many, meaning }
}

/// The words, as docs/words.md defines them.
const TERMS: &[Term] = &[
    term_of("REF", "REFs", "the name of a work item and its conversation, such as LOGIN-1"),
    term_of("grant", "grants", "the account that your request opens; all work that it causes is charged to it"),
    term_of("hold", "holds", "what keeps a request or a tool call undelivered until a human acts"),
    term_of("lift", "lifts", "the step by which a human ends a hold or extends a limit"),
    term_of("hop", "hops", "one delegation from an agent to another, counted from the grant"),
    term_of("depth", "depths", "the number of answers and requests above a message in its conversation"),
    term_of("root", "roots", "a request that an agent sends on its own, outside every turn"),
    term_of("turn", "turns", "one stretch of work of an agent, from a delivery to its end"),
    term_of("incident", "incidents", "the record of a limit that tripped"),
    term_of("room", "rooms", "a place for posts to several agents, such as a channel of Discord"),
    term_of("notice", "notices", "information attached to an agent's next delivery; it wakes no agent"),
    term_of("action", "actions", "what an agent offers to do; a request to #action goes to one that offers it"),
    term_of("group", "groups", "agents under one name; a request to @group goes to each of them"),
    term_of("guard", "guards", "the check of one rule before a message is admitted"),
    term_of("digest", "digests", "what a tool call is recognised by; an approval is for one digest"),
];

/// Shows a word of the table with its meaning; any other word as it is.
pub(super) fn term(word: &str) -> Markup {
    let known = TERMS.iter().find(|term| term.one.eq_ignore_ascii_case(word) || term.many.eq_ignore_ascii_case(word));
    html! { @match known { Some(term) => abbr title=(term.meaning) { (word) }, None => (word) } }
}

/// Shows the words with their meanings.
pub(super) fn all() -> Markup {
    html! {
        dl.keys.words {
            @for term in TERMS { dt { (term.one) } dd { (term.meaning) } }
            dt { "D5, R1, …" } dd { "the rules of the protocol; " a href=(url("/limits")) { "Limits" } " says what each bounds" }
        }
    }
}

/// Returns what was refused and why, in words for the human who reads of it.
pub(super) fn told_of(problem: &Problem) -> String {
    match problem.detail.strip_prefix(problem.code.title()) {
        Some(rest) => format!("{}{rest}", told(problem.code)),
        None => problem.detail.clone(),
    }
}

/// Returns the same within a sentence.
pub(super) fn told_within(code: Code) -> String {
    let words = told(code);
    let mut chars = words.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

/// Shows the id of a rule, with a link to the limits that it has.
pub(super) fn rule(id: &str) -> Markup {
    html! {
        @if LIMITS.iter().any(|limit| limit.rule == id) { a.rule-id href={ (url("/limits#")) (id) } title="The limits of this rule" { (id) } }
        @else { abbr.rule-id title="A rule of the protocol that has no limit" { (id) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_one_of_the_vocabulary() {
        let words = include_str!("../../docs/words.md");
        for Term { one, .. } in TERMS {
            assert!(words.contains(&format!("\n| {one} | ")), "{one}");
        }
        assert_eq!(term("hops").into_string().matches("<abbr title=\"one delegation").count(), 1);
        assert_eq!(term("spoon").into_string(), "spoon");
    }

    #[test]
    fn a_rule_leads_to_its_limits_where_it_has_some() {
        assert!(rule("D8").into_string().contains("href=\"/limits#D8\""));
        assert!(rule("R3").into_string().contains("<abbr"));
    }
}
