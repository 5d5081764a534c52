//! The policy of held calls: which calls a rule decides, which humans and agents decide the others, and in what
//! time (H2, H3).
//!
//! A pattern sorts the calls of well-meaning agents by their text; it can't stop a hostile one. So a rule that allows
//! matches a command as narrowly as possible, and a rule that asks or denies as widely: in each spelling that the shell
//! around the core finds in the call, and where it can't read the call, a human decides.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

use crate::digest::{Digest, hex};
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
/// `Bash(sha256:…)` matches the calls with exactly the arguments that have this digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallPattern {
    tool: Box<str>,
    argument: Option<Box<str>>,
}

/// What a call acts on, as the rules see it. The core parses neither JSON nor the language of a shell, so the shell around
/// it computes this.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subjects {
    /// The digest of all arguments.
    pub arguments: Digest,
    /// The texts that the call acts on, as they were written: its command, its file, its address.
    pub written: Vec<Box<str>>,
    /// Other spellings of these, and each command that the call would run. [`UNREAD`] stands for a part that nobody can
    /// read before it runs.
    pub spelled: Vec<Box<str>>,
    /// Commands that the call may run: those in an argument of a program that isn't known.
    pub possible: Vec<Box<str>>,
    /// The arguments of programs that aren't known; each of these words may begin a command that the program runs.
    pub passed: Vec<Box<str>>,
    /// What its commands give to databases. No rule is about it.
    pub statements: Vec<Box<str>>,
}

/// Stands for any text in [`Subjects`].
pub const UNREAD: char = '\0';

/// Whether a rule is for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Covers {
    No,
    /// A part of the call can't be read, or is passed to a program that isn't known, and the rule may be about it.
    Perhaps,
    Yes,
}

impl Policy {
    /// Returns the rule that applies to an agent's call of a tool. Where a part of the call can't be read, or only may be a
    /// command, a rule that denies asks instead.
    #[must_use]
    pub fn first(&self, agent: &str, tool: &str, subjects: &Subjects) -> Option<ApprovalRule> {
        let for_agent =
            |rule: &&ApprovalRule| rule.agents.is_empty() || rule.agents.iter().any(|name| name.as_str() == agent);
        self.rules.iter().filter(for_agent).find_map(|rule| match rule.call.covers(rule.ruling, tool, subjects) {
            Covers::No => None,
            Covers::Perhaps => Some(ApprovalRule { ruling: Ruling::Ask, ..rule.clone() }),
            Covers::Yes => Some(rule.clone()),
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

    /// Returns the pattern of the calls of a tool with exactly these arguments; `None` if the tool's name can't stand in
    /// a pattern.
    #[must_use]
    pub fn exact(tool: &str, arguments: &Digest) -> Option<Self> {
        let pattern = Self::parse(&alloc::format!("{tool}({EXACT}{})", hex(arguments)))?;
        // A `*` in the name would allow other tools.
        (*pattern.tool == *tool && !tool.contains('*')).then_some(pattern)
    }

    /// Returns what its calls act on, or the digest of their arguments.
    #[must_use]
    pub fn argument(&self) -> Option<&str> {
        self.argument.as_deref()
    }

    fn covers(&self, ruling: Ruling, tool: &str, subjects: &Subjects) -> Covers {
        let sure = |fits: bool| if fits { Covers::Yes } else { Covers::No };
        if !fits(&self.tool, tool, |_, _| true) {
            return Covers::No;
        }
        let Some(argument) = &self.argument else { return Covers::Yes };
        if let Some(digest) = argument.strip_prefix(EXACT) {
            return sure(digest == hex(&subjects.arguments));
        }
        let Subjects { written, spelled, possible, passed, .. } = subjects;
        match ruling {
            // A rule must not allow what it can't see: a second subject, a second command, another folder.
            Ruling::Allow => sure(matches!(written.as_slice(), [only] if fits(argument, only, stays_within))),
            Ruling::Ask | Ruling::Deny => {
                // What a call of an unknown tool acts on stays unknown, and a rule for all tools must not hold each.
                let blind = written.is_empty() && self.tool.contains('*');
                let mut texts = written.iter().chain(spelled);
                let mut unread = texts.clone().filter(|text| text.contains(UNREAD));
                if texts.any(|text| fits(argument, text.trim(), |_, _| true)) {
                    Covers::Yes
                } else if !blind && unread.any(|text| may_fit(argument, text.trim()))
                    || possible.iter().any(|text| may_begin(argument, text, &mut core::iter::once(0)))
                    || passed.iter().any(|text| may_begin(argument, text, &mut word_starts(text)))
                {
                    Covers::Perhaps
                } else {
                    Covers::No
                }
            }
        }
    }
}

/// What stands before the digest of a call's arguments in a pattern.
const EXACT: &str = "sha256:";

impl fmt::Display for CallPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.argument {
            Some(argument) => write!(f, "{}({argument})", self.tool),
            None => f.write_str(&self.tool),
        }
    }
}

/// Characters with which a shell ends one command and begins another, redirects or fills in, and what can't be read.
const LEADS_OUT: [char; 14] = [';', '&', '|', '\n', '\r', '`', '$', '(', ')', '{', '}', '<', '>', UNREAD];

/// Whether the `*` of a rule that allows may match this character: not if a shell starts another command or redirects
/// with it, nor if it leads up to another folder.
fn stays_within(c: char, next: Option<char>) -> bool {
    let climbs = c == '.' && next == Some('.');
    !climbs && !LEADS_OUT.contains(&c)
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

/// The most places of a text that are compared with a pattern in full. A text with more of them isn't told apart.
const BEGINNINGS_MAX: usize = 8;

fn word_starts(text: &str) -> impl Iterator<Item = usize> {
    core::iter::once(0).chain(text.match_indices(' ').map(|(at, _)| at + 1))
}

/// Whether a text may fit a pattern from one of these places on, if something was read there.
fn may_begin(pattern: &str, text: &str, places: &mut dyn Iterator<Item = usize>) -> bool {
    let literal = pattern.split('*').next().unwrap_or_default();
    if literal.is_empty() {
        // It fits from the first place on if from any.
        return fits(pattern, text, |_, _| true);
    }
    let begins = |from: &str| {
        let read = from.chars().zip(literal.chars()).take_while(|(found, _)| *found != UNREAD);
        !from.is_empty() && !from.starts_with(UNREAD) && { read }.all(|(found, wanted)| found == wanted)
    };
    let mut beginnings = places.filter_map(|at| text.get(at..)).filter(|from| begins(from));
    beginnings.by_ref().take(BEGINNINGS_MAX).any(|from| may_fit(pattern, from)) || beginnings.next().is_some()
}

/// Whether some text fits a pattern that is this text but for its unread parts, each of which may be any text.
fn may_fit(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    // The lengths of the beginnings of the pattern that what was read of the text may fit.
    let mut fitted = alloc::vec![false; pattern.len() + 1];
    fitted[0] = true;
    let skip_stars = |fitted: &mut [bool]| {
        for (at, wanted) in pattern.iter().enumerate() {
            fitted[at + 1] |= *wanted == '*' && fitted[at];
        }
    };
    skip_stars(&mut fitted);
    for found in text.chars() {
        let mut next = alloc::vec![false; pattern.len() + 1];
        if found == UNREAD {
            let first = fitted.iter().position(|fits| *fits).unwrap_or(next.len());
            next[first..].fill(true);
        } else {
            for (at, wanted) in pattern.iter().enumerate() {
                next[at + 1] |= *wanted == found && fitted[at];
                next[at] |= *wanted == '*' && fitted[at];
            }
        }
        skip_stars(&mut next);
        fitted = next;
    }
    fitted[pattern.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(written: &[&str], spelled: &[&str]) -> Subjects {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).into()).collect();
        Subjects { arguments: [7; 32], written: texts(written), spelled: texts(spelled), ..Subjects::default() }
    }

    fn covers(ruling: Ruling, pattern: &str, tool: &str, subjects: &[&str]) -> bool {
        CallPattern::parse(pattern).unwrap().covers(ruling, tool, &call(subjects, &[])) == Covers::Yes
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
    fn a_rule_that_denies_looks_at_every_spelling() {
        let denies =
            |subjects: &Subjects| CallPattern::parse("Bash(git push*)").unwrap().covers(Ruling::Deny, "Bash", subjects);
        for (written, spelled, covered) in [
            ("sudo git  push", &["git push"][..], Covers::Yes),
            ("git log", &["git log"], Covers::No),
            ("$X push", &["\0 push"], Covers::Perhaps),
            ("git $X", &["git \0"], Covers::Perhaps),
            ("g$X", &["g\0"], Covers::Perhaps),
            ("git pu$X", &["git pu\0"], Covers::Perhaps),
            ("git push $X", &["git push \0"], Covers::Yes),
            ("grep $X", &["grep \0"], Covers::No),
            ("git pull $X", &["git pull \0"], Covers::No),
            ("a\0", &[], Covers::No),
        ] {
            assert_eq!(denies(&call(&[written], spelled)), covered, "{written}");
        }
        assert_eq!(denies(&call(&[], &["\0"])), Covers::Perhaps, "a tool with a member of its own for the command");
        let any = CallPattern::parse("*(git push*)").unwrap();
        assert_eq!(any.covers(Ruling::Deny, "Other", &call(&[], &["\0"])), Covers::No);
        assert!(covers(Ruling::Ask, "Bash", "Bash", &[]), "the tool alone");
    }

    #[test]
    fn what_can_not_be_read_asks_where_a_rule_denies_and_is_not_allowed() {
        let rule = |pattern: &str, ruling| ApprovalRule {
            call: CallPattern::parse(pattern).unwrap(),
            agents: Vec::new(),
            ruling,
            tier: None,
            who: None,
            timeout_ms: None,
        };
        let policy = Policy { rules: alloc::vec![rule("Bash(rm *)", Ruling::Deny), rule("Bash", Ruling::Allow)] };
        let ruling = |subjects: &Subjects| policy.first("a", "Bash", subjects).map(|rule| rule.ruling);
        assert_eq!(ruling(&call(&["eval $X"], &["\0"])), Some(Ruling::Ask));
        assert_eq!(ruling(&call(&["rm x"], &["rm x"])), Some(Ruling::Deny));
        assert_eq!(ruling(&call(&["ls"], &["ls"])), Some(Ruling::Allow));
        assert!(!covers(Ruling::Allow, "Bash(*)", "Bash", &["\0"]));
    }

    #[test]
    fn a_command_that_a_program_which_is_not_known_may_run_waits_for_a_decision() {
        let of = |pattern: &str, subjects: &Subjects| {
            CallPattern::parse(pattern).unwrap().covers(Ruling::Deny, "Bash", subjects)
        };
        let passed = |text: &str| Subjects { passed: alloc::vec![text.into()], ..call(&["x"], &["x"]) };
        for (text, covered) in [
            ("run git push", Covers::Perhaps),
            ("git push", Covers::Perhaps),
            ("run git pull", Covers::No),
            ("run git\u{1}push", Covers::No),
            ("run agit push", Covers::No),
            ("run git", Covers::No),
            ("run git \0", Covers::Perhaps),
            ("run g\0", Covers::Perhaps),
            ("run \0 push", Covers::No),
        ] {
            assert_eq!(of("Bash(git push*)", &passed(text)), covered, "{text}");
        }
        assert_eq!(of("Bash(rm)", &passed("x rm")), Covers::Perhaps);
        assert_eq!(of("Bash(rm)", &passed("x rm y")), Covers::No);
        assert_eq!(of("Bash(*push)", &passed("git \0")), Covers::No, "the whole command was compared");
        assert_eq!(of("Bash(rm *x)", &passed(&"rm y ".repeat(9))), Covers::Perhaps, "too many to compare");
        let possible = |text: &str| Subjects { possible: alloc::vec![text.into()], ..call(&["x"], &["x"]) };
        assert_eq!(of("Bash(git push*)", &possible("git push origin")), Covers::Perhaps);
        assert_eq!(of("Bash(git push*)", &possible("echo git push")), Covers::No);
    }

    #[test]
    fn an_exact_rule_is_for_all_arguments() {
        let exact = CallPattern::exact("Bash", &[7; 32]).unwrap();
        assert_eq!(CallPattern::parse(&alloc::format!("{exact}")), Some(exact.clone()));
        assert_eq!(exact.covers(Ruling::Allow, "Bash", &call(&["a", "b"], &[])), Covers::Yes);
        let other = Subjects { arguments: [8; 32], ..call(&["a", "b"], &[]) };
        for ruling in [Ruling::Allow, Ruling::Deny] {
            assert_eq!(exact.covers(ruling, "Bash", &other), Covers::No);
        }
        assert_eq!(CallPattern::exact("mcp__*", &[7; 32]), None);
        assert_eq!(CallPattern::exact("a(b", &[7; 32]), None);
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
