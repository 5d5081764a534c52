//! The names of shared resources: paths of a work tree, and patterns of them as git writes them (C1).
//!
//! A name is `SCOPE:PATH`, or a path alone. The scope says which tree the path is in; `repo`, or none, is the repository
//! that the team works in, whichever that is. A path covers what is in it: `src` covers `src/a.rs`. In a pattern, `*` is
//! any text within one part of a path, `?` one character, `[a-z]` one of a set, and the part `**` any number of parts. A
//! pattern of one part stands for that part in every directory. A name also stands for itself as it is written, so that
//! `app/[id].tsx` is the file of that name, too.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smol_str::SmolStr;
use unicode_normalization::{UnicodeNormalization as _, is_nfc};

use crate::name_error::NameError;
use crate::visible::steers;

/// The longest name of a resource, in bytes.
pub const RESOURCE_BYTES_MAX: usize = 512;
/// The longest lease of an agent on all of a tree, in ms: that of a command with which git changes files all over it.
pub const TREE_LEASE_MS_MAX: u64 = 60_000;
/// What the name of a resource may hold.
const FORM: &str = "use a path such as `repo:src/auth/*`, on one line and without characters that are not seen";
/// What a path may not do.
const FORM_INSIDE: &str = "name the directory itself: `..` leads out of the tree";
/// The scope of the repository that the team works in.
const TEAM: &str = "repo";
/// The part that stands for any number of parts.
const ANY: &str = "**";

/// The name of a shared resource, such as `repo:src/auth/*` (C1). Two spellings of one path are one name: `./`, `//` and
/// `..` are resolved, and the text is in the normal form C of Unicode.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource(SmolStr);

impl Resource {
    /// Checks and normalizes a name.
    ///
    /// # Errors
    /// The text is empty or too long, leads out of its tree by `..`, or has a character that isn't seen.
    pub fn new(text: &str) -> Result<Self, NameError> {
        let composed: String;
        let text = if is_nfc(text) {
            text
        } else {
            composed = text.nfc().collect();
            &composed
        };
        check(text)?;
        let name = normalized(text)?;
        // A whole tree is written with more than what stood there.
        check(&name)?;
        Ok(Self(name.into()))
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether something can be covered by both names.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let (one, two) = (self.split(), other.split());
        if !same_tree(one.0, two.0) {
            return false;
        }
        is_within(one.1, two.1) || is_within(two.1, one.1) || meet(&pattern(one.1), &pattern(two.1))
    }

    /// Returns whether all that another name covers is covered by this one. A pattern that isn't written below this name is
    /// taken not to be.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let (own, other) = (self.split(), other.split());
        if !same_tree(own.0, other.0) {
            return false;
        }
        let (own, other) = (own.1, other.1);
        is_within(other, own) || (!other.contains(['*', '?']) && matches(&pattern(own), &parts(other)))
    }

    /// Returns whether the name covers a whole scope, or all names that begin alike: no directory stands before its first
    /// wildcard.
    #[must_use]
    pub fn is_wide(&self) -> bool {
        let path = self.split().1;
        let mut parts = parts(path).into_iter();
        match parts.next() {
            None => true,
            Some(first) => is_pattern(first),
        }
    }

    /// Returns whether the name covers all of one tree, which its scope names.
    #[must_use]
    pub fn is_tree(&self) -> bool {
        matches!(self.split(), (Some(scope), ANY) if scope != TEAM)
    }

    /// Returns whether the name has a wildcard.
    #[must_use]
    pub fn is_pattern(&self) -> bool {
        is_pattern(self.split().1)
    }

    /// Returns the scope, and the path in it.
    #[must_use]
    pub fn split(&self) -> (Option<&str>, &str) {
        split(&self.0)
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Resource {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Resource {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        check(&text).map_err(serde::de::Error::custom)?;
        // Names of the second edition weren't resolved, and some lead out of their tree: they stay as the log has them.
        Ok(Self(normalized(&text).unwrap_or(text).into()))
    }
}

fn check(text: &str) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if text.len() > RESOURCE_BYTES_MAX {
        return Err(NameError::TooLong { max: RESOURCE_BYTES_MAX });
    }
    match text.char_indices().find(|(_, c)| c.is_control() || steers(*c)) {
        Some((offset, _)) => Err(NameError::Character { offset, form: FORM }),
        None => Ok(()),
    }
}

/// Resolves `.`, `..` and doubled slashes. A whole tree is `**`.
fn normalized(text: &str) -> Result<String, NameError> {
    let (scope, path) = split(text);
    let mut kept: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if kept.pop().is_none() => {
                let offset = text.len() - path.len();
                return Err(NameError::Character { offset, form: FORM_INSIDE });
            }
            ".." => {}
            // Twice in a row it says nothing more.
            ANY if kept.last() == Some(&ANY) => {}
            part => kept.push(part),
        }
    }
    let mut name = scope.map(|scope| scope.to_string() + ":").unwrap_or_default();
    if path.starts_with('/') {
        name.push('/');
    }
    name.push_str(&if kept.is_empty() { ANY.to_string() } else { kept.join("/") });
    Ok(name)
}

fn split(name: &str) -> (Option<&str>, &str) {
    match name.split_once(':') {
        Some((scope, path)) => (Some(scope), path),
        None => (None, name),
    }
}

/// Returns whether two scopes can be the same tree. A repository is named with its branch, as in `acme/app@main`.
fn same_tree(one: Option<&str>, two: Option<&str>) -> bool {
    let is_teams = |scope: Option<&str>| scope.is_none_or(|scope| scope == TEAM);
    let is_repository = |scope: Option<&str>| is_teams(scope) || scope.is_some_and(|scope| scope.contains('@'));
    one == two || (is_repository(one) && is_repository(two) && (is_teams(one) || is_teams(two)))
}

fn parts(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| !part.is_empty()).collect()
}

/// Returns the parts of a pattern. One part with a wildcard is meant in every directory.
fn pattern(path: &str) -> Vec<&str> {
    let mut parts = parts(path);
    if let [only] = parts[..]
        && only != ANY
        && is_pattern(only)
        && !path.starts_with('/')
    {
        parts.insert(0, ANY);
    }
    parts
}

fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '[', '\\'])
}

/// Returns whether a path is another one or in it, both as they are written.
fn is_within(path: &str, dir: &str) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns whether a pattern covers a path: it matches the path, or a directory that the path is in.
fn matches(pattern: &[&str], path: &[&str]) -> bool {
    match (pattern, path) {
        // `a/**` is what is in `a`, and not `a` itself.
        ([ANY], path) => !path.is_empty(),
        ([], _) => true,
        ([ANY, rest @ ..], path) => matches(rest, path) || (!path.is_empty() && matches(pattern, &path[1..])),
        ([first, rest @ ..], [name, below @ ..]) => part_matches(first, name) && matches(rest, below),
        ([_, ..], []) => false,
    }
}

fn part_matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (tokens(pattern), name.chars().map(Token::One).collect::<Vec<_>>());
    join(&pattern, &name)
}

/// Returns whether two patterns can cover the same path.
fn meet(one: &[&str], two: &[&str]) -> bool {
    // A side that is used up covers whatever the other side names below it.
    let mut seen = VisitedPairs::new(one.len(), two.len());
    let mut next = alloc::vec![(0, 0)];
    while let Some((i, j)) = next.pop() {
        let (a, b) = (one.get(i).copied(), two.get(j).copied());
        let (Some(a), Some(b)) = (a, b) else { return true };
        if !seen.first(i, j) {
            continue;
        }
        match (a == ANY, b == ANY) {
            (false, false) => {
                if join(&tokens(a), &tokens(b)) {
                    next.push((i + 1, j + 1));
                }
            }
            // At its end it is at least one part, which the other side has here.
            (true, _) if i + 1 == one.len() => return true,
            (_, true) if j + 1 == two.len() => return true,
            (true, _) => next.extend([(i + 1, j), (i, j + 1)]),
            (_, true) => next.extend([(i, j + 1), (i + 1, j)]),
        }
    }
    false
}

/// What one place of a pattern matches.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    One(char),
    Any,
    Set { not: bool, ranges: Vec<(char, char)> },
    Run,
}

impl Token {
    fn holds(&self, c: char) -> bool {
        match self {
            Self::One(own) => *own == c,
            Self::Any | Self::Run => true,
            Self::Set { not, ranges } => ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *not,
        }
    }

    /// Whether one character is matched by both.
    fn shares(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::One(c), token) | (token, Self::One(c)) => token.holds(*c),
            (Self::Set { ranges: one, .. }, Self::Set { ranges: two, .. }) => {
                // Two sets share the end of a range of theirs, or what is just outside of one.
                let around = |c: char| {
                    let code = u32::from(c);
                    [code.checked_sub(1), Some(code), Some(code + 1)].into_iter().flatten().filter_map(char::from_u32)
                };
                let ends = one.iter().chain(two).flat_map(|(low, high)| around(*low).chain(around(*high)));
                ends.filter(|c| *c != '/').any(|c| self.holds(c) && other.holds(c))
            }
            (Self::Any | Self::Run | Self::Set { .. }, _) => true,
        }
    }
}

fn tokens(part: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = part.chars();
    while let Some(c) = rest.next() {
        let token = match c {
            '*' => Token::Run,
            '?' => Token::Any,
            '\\' => rest.next().map_or(Token::One('\\'), Token::One),
            '[' => match set(rest.as_str()) {
                Some((set, after)) => {
                    rest = after.chars();
                    set
                }
                None => Token::One('['),
            },
            c => Token::One(c),
        };
        if token != Token::Run || tokens.last() != Some(&Token::Run) {
            tokens.push(token);
        }
    }
    tokens
}

/// Parses a set of characters behind its `[`, and returns what follows it; `None` if it isn't closed.
fn set(text: &str) -> Option<(Token, &str)> {
    let negated = text.strip_prefix(['!', '^']);
    let (not, mut rest) = (negated.is_some(), negated.unwrap_or(text).chars());
    let mut ranges: Vec<(char, char)> = Vec::new();
    loop {
        let low = match rest.next()? {
            ']' if !ranges.is_empty() => return Some((Token::Set { not, ranges }, rest.as_str())),
            '\\' => rest.next()?,
            c => c,
        };
        let mut ahead = rest.clone();
        let high = match (ahead.next(), ahead.next()) {
            (Some('-'), Some(high)) if high != ']' => {
                let high = if high == '\\' { ahead.next()? } else { high };
                rest = ahead;
                high
            }
            _ => low,
        };
        ranges.push((low, high));
    }
}

/// Returns whether some text is matched by both.
fn join(one: &[Token], two: &[Token]) -> bool {
    let mut seen = VisitedPairs::new(one.len(), two.len());
    let mut next = alloc::vec![(0, 0)];
    while let Some((i, j)) = next.pop() {
        if !seen.first(i, j) {
            continue;
        }
        match (one.get(i), two.get(j)) {
            (None, None) => return true,
            (Some(Token::Run), b) => {
                next.push((i + 1, j));
                if b.is_some() {
                    next.push((i, j + 1));
                }
                // The run of the other side takes what this one's stands for.
            }
            (a, Some(Token::Run)) => {
                next.push((i, j + 1));
                if a.is_some() {
                    next.push((i + 1, j));
                }
            }
            (Some(a), Some(b)) if a.shares(b) => next.push((i + 1, j + 1)),
            _ => {}
        }
    }
    false
}

/// The pairs of places that were looked at.
struct VisitedPairs {
    width: usize,
    bits: Vec<bool>,
}

impl VisitedPairs {
    fn new(one: usize, two: usize) -> Self {
        Self { width: two + 1, bits: alloc::vec![false; (one + 1) * (two + 1)] }
    }

    /// Returns whether a pair is new.
    fn first(&mut self, i: usize, j: usize) -> bool {
        !core::mem::replace(&mut self.bits[i * self.width + j], true)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> Resource {
        Resource::new(text).unwrap()
    }

    #[test]
    fn a_name_that_is_written_out_longer_than_it_may_be_is_refused() {
        let scope = |bytes: usize| "x".repeat(bytes) + ":";
        let too_long = NameError::TooLong { max: RESOURCE_BYTES_MAX };
        assert_eq!(Resource::new(&scope(RESOURCE_BYTES_MAX - 1)), Err(too_long));
        assert_eq!(Resource::new(&scope(RESOURCE_BYTES_MAX - 3)).unwrap().as_str().len(), RESOURCE_BYTES_MAX);
    }

    #[test]
    fn spellings_of_one_path_are_one_name() {
        for (text, kept) in [
            ("repo:./src//a/", "repo:src/a"),
            ("src/./b/../a.rs", "src/a.rs"),
            ("repo:.", "repo:**"),
            ("/srv/www/", "/srv/www"),
            ("a b/ü.rs", "a b/ü.rs"),
            ("u\u{308}.rs", "ü.rs"),
            ("src/**/**/x", "src/**/x"),
        ] {
            assert_eq!(name(text).as_str(), kept, "{text}");
        }
        for refused in ["", "../x", "repo:a/../../b", "a\nb", "a\u{202e}b"] {
            assert!(Resource::new(refused).is_err(), "{refused:?}");
        }
        assert!(Resource::new(&"x/".repeat(300)).is_err());
        let earlier: Resource = serde_json::from_str("\"repo:../x/*\"").unwrap();
        assert_eq!(earlier.as_str(), "repo:../x/*", "a name of an earlier log");
    }

    #[test]
    fn names_that_share_a_file_overlap() {
        for (one, two) in [
            ("repo:./src/a", "repo:src/*"),
            ("repo:src//a", "repo:src/*"),
            ("src", "src/a/b.rs"),
            ("repo:src/*", "src/a/b.rs"),
            ("src/**/x.rs", "src/x.rs"),
            ("src/**", "src/a"),
            ("src/*.rs", "src/a*"),
            ("src/[a-c]?", "src/[!x]b"),
            ("**/*.rs", "src/deep/down/a.rs"),
            ("*.rs", "src/a.rs"),
            ("app/[id]/page.tsx", "app/[id]/page.tsx"),
            ("app/[id]", "app/[id]/page.tsx"),
            ("repo:src/a.rs", "github.com/acme/app@main:src/a.rs"),
            ("/srv/*", "/srv/www/x"),
        ] {
            assert!(name(one).overlaps(&name(two)) && name(two).overlaps(&name(one)), "{one} and {two}");
        }
        for (one, two) in [
            ("src/a.rs", "src/a.rsx"),
            ("src", "srca/b"),
            ("src/*.rs", "src/*.md"),
            ("src/*/x", "src/y/z"),
            ("README.md", "docs/README.md"),
            ("repo:x", "db:x"),
            ("app@main:src/a.rs", "app@next:src/a.rs"),
            ("src/[ab]", "src/[cd]"),
        ] {
            assert!(!name(one).overlaps(&name(two)) && !name(two).overlaps(&name(one)), "{one} and {two}");
        }
    }

    #[test]
    fn a_name_without_a_directory_before_its_wildcard_is_wide() {
        for wide in [
            "*",
            "a*",
            "**",
            "src*",
            "repo:*",
            "repo:s*",
            "/*",
            "/s*",
            "./*",
            "a:b:*",
            "repo:/*",
            "//*",
            "a/../*",
            "repo:a/../*",
            "a/b/../../*",
            "*.rs",
            "repo:.",
            "[a-z]*/x",
            "?rc/x",
        ] {
            assert!(name(wide).is_wide(), "{wide}");
        }
        for narrow in [
            "repo:src/auth/*",
            "docs/*",
            "src/a*",
            "README.md",
            "repo:README.md",
            "a",
            "/srv/www/*",
            "./src/*",
            "a/../b/*",
            "src/**/*.rs",
        ] {
            assert!(!name(narrow).is_wide(), "{narrow}");
        }
    }

    /// Paths of one to three parts over a few letters.
    fn path() -> impl Strategy<Value = String> {
        proptest::collection::vec("[ab]{1,2}", 1..4).prop_map(|parts| parts.join("/"))
    }

    fn glob() -> impl Strategy<Value = String> {
        let part =
            prop_oneof![3 => "[ab]{1,2}", 2 => "[ab*?]{1,3}", 1 => Just(String::from("**")), 1 => "\\[[ab]\\][ab*]?"];
        proptest::collection::vec(part, 1..4).prop_map(|parts| parts.join("/"))
    }

    /// All paths of up to three parts over the letters, of up to three letters each.
    fn all() -> Vec<String> {
        let letters = ["a", "b"];
        let two = letters.iter().flat_map(|a| letters.map(|b| [a, b].concat())).collect::<Vec<_>>();
        let three = two.iter().flat_map(|a| letters.map(|b| a.clone() + b)).collect::<Vec<_>>();
        let parts: Vec<String> = letters.iter().map(|letter| String::from(*letter)).chain(two).chain(three).collect();
        let deeper = |above: &[String]| -> Vec<String> {
            above.iter().flat_map(|above| parts.iter().map(move |part| [above, part.as_str()].join("/"))).collect()
        };
        let second = deeper(&parts);
        let third = deeper(&second);
        parts.into_iter().chain(second).chain(third).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn names_overlap_where_a_path_is_covered_by_both(one in glob(), two in glob()) {
            let (one, two) = (name(&one), name(&two));
            let shared = all().into_iter().find(|path| {
                let path = name(path);
                one.covers(&path) && two.covers(&path)
            });
            let overlaps = one.overlaps(&two);
            prop_assert_eq!(overlaps, two.overlaps(&one));
            if let Some(path) = &shared {
                prop_assert!(overlaps, "{:?} and {:?} share {}", one, two, path);
            }
            // Longer paths than those that were tried need more parts than these names have.
            let parts = |name: &Resource| pattern(name.as_str()).len();
            if shared.is_none() && parts(&one) + parts(&two) <= 3 {
                prop_assert!(!overlaps, "{:?} and {:?} share nothing", one, two);
            }
        }

        #[test]
        fn a_directory_covers_what_is_in_it(dir in path(), below in path()) {
            let inside = name(&[dir.as_str(), below.as_str()].join("/"));
            prop_assert!(name(&dir).covers(&inside));
            prop_assert!(name(&dir).overlaps(&inside));
        }

        #[test]
        fn normalizing_twice_changes_nothing(text in "[a-b./*:]{1,12}") {
            if let Ok(once) = Resource::new(&text) {
                prop_assert_eq!(Resource::new(once.as_str()).unwrap(), once);
            }
        }
    }
}
