//! The policy of held calls: which calls a rule decides, which humans and agents decide the others, and in what
//! time (H2, H3).
//!
//! A pattern sorts the calls of well-meaning agents by their text; it can't stop a hostile one. So a rule that allows
//! matches a command as narrowly as possible, and a rule that asks or denies as widely.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

use crate::envelope::words;
use crate::limits::Approvers;
use crate::names::{AgentName, Label};

words! {
    /// The effect of a policy rule on a call (H2).
    Ruling {
        /// A human or a named agent has to decide.
        Ask = "ask",
        /// The call is approved without a decision by a human, and recorded.
        Allow = "allow",
        /// The call is denied without a decision by a human, and recorded.
        Deny = "deny",
    }
}

/// The rules, in order. The first one that matches a call applies; a call that no rule matches is held for a decision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// The rules, in the order in which they are tried.
    pub rules: Vec<ApprovalRule>,
}

/// One rule of the policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRule {
    /// The calls that the rule matches.
    pub call: CallPattern,
    /// The agents whose calls it matches; every agent's if empty.
    pub agents: Vec<AgentName>,
    /// The effect on those calls.
    pub ruling: Ruling,
    /// The name of the tier that `who` and `timeout_ms` come from.
    pub tier: Option<Label>,
    /// The agents that may decide besides humans; `None` for those of the workspace's limits.
    pub who: Option<Approvers>,
    /// Time to decide, in ms; `None` for the workspace's `approval_ms`.
    pub timeout_ms: Option<u64>,
}

/// A tool and what its call acts on: `Bash`, `mcp__github__*` or `Bash(rm *)`. A `*` matches any run of characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallPattern {
    tool: Box<str>,
    argument: Option<Box<str>>,
}

impl Policy {
    /// Returns the rule that applies to an agent's call of a tool; `subjects` are the parts that the call acts on.
    #[must_use]
    pub fn first(&self, agent: &str, tool: &str, subjects: &[Box<str>]) -> Option<&ApprovalRule> {
        self.rules.iter().find(|rule| {
            let named = rule.agents.is_empty() || rule.agents.iter().any(|name| name.as_str() == agent);
            named && rule.call.covers(rule.ruling, tool, subjects)
        })
    }

    /// Returns every agent that the rules name.
    pub fn names(&self) -> impl Iterator<Item = &AgentName> + '_ {
        self.rules.iter().flat_map(|rule| rule.agents.iter().chain(rule.who.iter().flat_map(|who| &who.agents)))
    }
}

impl CallPattern {
    /// Parses a pattern; returns `None` if it names no tool or its parenthesis is not closed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (tool, argument) = match text.split_once('(') {
            Some((tool, rest)) => (tool, Some(rest.strip_suffix(')')?)),
            None => (text, None),
        };
        let plain = !tool.is_empty() && !tool.contains([')', ' ']);
        plain.then(|| Self { tool: tool.into(), argument: argument.map(Into::into) })
    }

    fn covers(&self, ruling: Ruling, tool: &str, subjects: &[Box<str>]) -> bool {
        if !fits(&self.tool, tool, |_, _| true) {
            return false;
        }
        let Some(argument) = &self.argument else { return true };
        match ruling {
            // A rule must not allow what it can't see: a second subject, a second command, another folder.
            Ruling::Allow => matches!(subjects, [only] if fits(argument, only, stays_within)),
            Ruling::Ask | Ruling::Deny => subjects.iter().any(|subject| {
                let one = |text: &str| fits(argument, unquoted(text), |_, _| true);
                let any = |text: &str| one(text) || text.split(SEPARATORS).any(one);
                any(subject) || script(subject).is_some_and(any)
            }),
        }
    }
}

impl fmt::Display for CallPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.argument {
            Some(argument) => write!(f, "{}({argument})", self.tool),
            None => f.write_str(&self.tool),
        }
    }
}

/// Returns the script in a command that starts a shell with one, such as `/bin/bash -lc SCRIPT`, also behind programs such
/// as `env`. Codex writes each call so.
fn script(command: &str) -> Option<&str> {
    let mut rest = command;
    loop {
        let (name, after) = word(rest)?;
        rest = after;
        if !matches!(name.rsplit('/').next(), Some("bash" | "dash" | "sh" | "zsh")) {
            continue;
        }
        let mut flags = after;
        while let Some((flag, after)) = word(flags).filter(|(flag, _)| flag.starts_with('-')) {
            if !flag.starts_with("--") && flag.contains('c') {
                return Some(unquoted(after));
            }
            // These take the name of an option.
            let named = flag.ends_with(['o', 'O']);
            flags = word(after).filter(|_| named).map_or(after, |(_, after)| after);
        }
    }
}

/// Splits off the first word, without its quotes.
fn word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    (!word.is_empty()).then(|| (word.trim_matches(QUOTES), rest))
}

fn unquoted(text: &str) -> &str {
    text.trim().trim_matches(QUOTES).trim()
}

const QUOTES: [char; 2] = ['\'', '"'];

/// Characters that end one shell command and begin another.
const SEPARATORS: [char; 11] = [';', '&', '|', '\n', '\r', '`', '$', '(', ')', '{', '}'];

/// Whether the `*` of a rule that allows may match this character: not if a shell starts another command or redirects
/// with it, nor if it leads up to another folder.
fn stays_within(c: char, next: Option<char>) -> bool {
    let leads_out = SEPARATORS.contains(&c) || matches!(c, '<' | '>') || (c == '.' && next == Some('.'));
    !leads_out
}

/// Whether a text matches a pattern in which each `*` matches only characters that `free` accepts.
fn fits(pattern: &str, text: &str, free: impl Fn(char, Option<char>) -> bool) -> bool {
    let (mut pattern, mut text) = (pattern.chars(), text.chars());
    // The place after the last `*`, and the text after what that `*` matches so far; for backtracking.
    let mut star = None;
    loop {
        let (mut rest, mut left) = (pattern.clone(), text.clone());
        match (rest.next(), left.next()) {
            (Some('*'), _) => {
                star = Some((rest.clone(), text.clone()));
                pattern = rest;
            }
            (None, None) => return true,
            (Some(wanted), Some(found)) if wanted == found => (pattern, text) = (rest, left),
            _ => {
                let Some((after, mut taken)) = star.take() else { return false };
                let Some(c) = taken.next() else { return false };
                if !free(c, taken.clone().next()) {
                    return false;
                }
                (pattern, text) = (after.clone(), taken.clone());
                star = Some((after, taken));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(ruling: Ruling, pattern: &str, tool: &str, subjects: &[&str]) -> bool {
        let subjects: Vec<Box<str>> = subjects.iter().map(|s| (*s).into()).collect();
        CallPattern::parse(pattern).unwrap().covers(ruling, tool, &subjects)
    }

    #[test]
    fn a_star_is_any_run_of_characters() {
        for (pattern, text, fit) in [
            ("Bash", "Bash", true),
            ("Bash", "BashOutput", false),
            ("mcp__*", "mcp__github__merge", true),
            ("mcp__*__merge", "mcp__git__hub__merge", true),
            ("*", "", true),
            ("a*b*c", "abbc", true),
            ("a*b*c", "acb", false),
            ("", "x", false),
        ] {
            assert_eq!(fits(pattern, text, |_, _| true), fit, "{pattern} {text}");
        }
    }

    #[test]
    fn a_rule_that_allows_lets_no_second_command_through() {
        let allows = |command: &str| covers(Ruling::Allow, "Bash(git log*)", "Bash", &[command]);
        assert!(allows("git log --oneline -5"));
        for more in [
            "git log; rm -rf /",
            "git log && curl x",
            "git log | sh",
            "git log $(rm x)",
            "git log `rm x`",
            "git log > ~/.bashrc",
            "git log\nrm x",
            "git log ../../secret",
            "sudo git log",
        ] {
            assert!(!allows(more), "{more}");
        }
        assert!(covers(Ruling::Allow, "Bash(git log | head)", "Bash", &["git log | head"]), "what it says itself");
        assert!(!covers(Ruling::Allow, "Bash(ls *)", "Bash", &["ls x", "/etc/shadow"]), "a second subject");
        assert!(!covers(Ruling::Allow, "Bash(*)", "Bash", &[]), "nothing to look at");
        assert!(!covers(Ruling::Allow, "Write(src/*)", "Write", &["src/../../.bashrc"]));
    }

    #[test]
    fn a_rule_that_denies_looks_into_every_command() {
        let denies = |command: &str| covers(Ruling::Deny, "Bash(rm *)", "Bash", &[command]);
        for command in ["rm -rf /", "cd /tmp && rm x", "echo $(rm x)", "true;rm x", "ls | rm x"] {
            assert!(denies(command), "{command}");
        }
        for command in [
            "/bin/bash -lc rm -rf /",
            "sh -c 'rm x'",
            "ls && bash -c \"rm x\"",
            "sh -c 'ls; rm x'",
            "bash -l -c 'rm x'",
            "bash --norc -o pipefail -ec 'ls | rm x'",
            "env A=1 sudo sh\t-c 'rm x'",
            "timeout 5 bash -c 'true && rm x'",
        ] {
            assert!(denies(command), "{command}");
        }
        assert!(!denies("grep -c rm x") && !denies("bash rm x"), "no script");
        assert!(!covers(Ruling::Allow, "Bash(ls *)", "Bash", &["bash -c ls x"]), "allowed as it is written");
        assert!(!denies("ls"));
        assert!(covers(Ruling::Ask, "Bash", "Bash", &[]), "the tool alone");
    }

    #[test]
    fn a_pattern_is_printed_as_it_was_written() {
        for text in ["Bash", "mcp__*", "Bash(rm *)", "Bash(echo (x))"] {
            let pattern = CallPattern::parse(text).unwrap();
            assert_eq!(alloc::format!("{pattern}"), text);
        }
        for text in ["", "(x)", "Bash(rm", "a b", "a)"] {
            assert_eq!(CallPattern::parse(text), None, "{text}");
        }
    }
}
