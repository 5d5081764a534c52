//! `lastword.toml` as the place to which a running server writes limits and rules of held calls that humans changed.
//! Comments and the order of the file stay as they are.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use lastword_facts::Limits;
use lastword_facts::policy::Policy;
use lastword_server::EditableConfig;

use crate::config::place;
use crate::config_file::Configuration;
use crate::failure::Failure;

/// The line that begins a rule.
const RULE: &str = "[[approval]]";
/// The line that begins the table of limits.
const LIMITS: &str = "[limits]";
/// How the comment begins that a change of a limit leaves, and that the next one replaces.
const SET_BY: &str = "# Set by ";

/// The configuration file that the server was started with, or would be.
#[derive(Debug)]
pub(crate) struct ConfigFile(PathBuf);

impl ConfigFile {
    /// Takes the file's path, which need not exist yet.
    pub(crate) fn at(path: &Path) -> Result<Self, Failure> {
        // The server may change its directory; and a link stays a link.
        Ok(Self(path.canonicalize().or_else(|_| std::path::absolute(path))?))
    }

    fn read(&self) -> Result<String, String> {
        match fs::read_to_string(&self.0) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
            read => read.map_err(|error| format!("{}: {error}", self.0.display())),
        }
    }

    fn policy(&self, text: &str) -> Result<Policy, String> {
        let file = Configuration::parse(&self.0, text);
        file.and_then(|file| file.policy(&file.limits()?)).map_err(|failure| failure.message)
    }

    fn limits(&self, text: &str) -> Result<Limits, String> {
        Configuration::parse(&self.0, text).and_then(|file| file.limits()).map_err(|failure| failure.message)
    }

    /// Replaces the file in one step.
    fn write(&self, text: &str) -> Result<(), String> {
        let mode = fs::metadata(&self.0).map_or(0o600, |known| known.permissions().mode() & 0o777);
        let draft = self.0.with_extension("toml.new");
        let write = || {
            let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&draft)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&draft, &self.0)
        };
        write().map_err(|error: std::io::Error| format!("{}: {error}", self.0.display()))
    }
}

impl EditableConfig for ConfigFile {
    fn place(&self) -> String {
        self.0.display().to_string()
    }

    fn add_rule(&self, rule: &str, comment: &str) -> Result<(), String> {
        let found = self.read()?;
        // Written once, however often it is allowed.
        let before = without(&found, rule).unwrap_or(found);
        let after = with(&before, &format!("# {comment}\n{rule}"));
        // The text is inserted by lines, so the result is read again: it must be the rule and the file's own rules.
        let (own, all) = (self.policy(&before)?, self.policy(&after)?);
        let alone = self.policy(rule)?;
        if all.rules != [alone.rules, own.rules].concat() {
            return Err(format!("the rule can't be inserted into {}: add it by hand", self.0.display()));
        }
        self.write(&after)
    }

    fn remove_rule(&self, rule: &str) -> Result<(), String> {
        let before = self.read()?;
        let Some(after) = without(&before, rule) else {
            return Err(format!("{} has no such rule any more", self.0.display()));
        };
        self.policy(&after)?;
        self.write(&after)
    }

    fn rule_comments(&self, rules: &[String]) -> Vec<Option<String>> {
        let text = self.read().unwrap_or_default();
        rules
            .iter()
            .map(|rule| Some(text[comment(&text, rule)?.0..].lines().next()?.trim_start_matches("# ").to_owned()))
            .collect()
    }

    fn set_limits(&self, limits: &BTreeMap<String, u64>, comment: &str) -> Result<BTreeMap<String, String>, String> {
        let before = self.read()?;
        let (mut after, mut wanted) = (before.clone(), self.limits(&before)?);
        for (name, value) in limits {
            after = with_limit(&after, name, *value, comment);
            wanted.set(name, *value);
        }
        // The text is changed by lines, so the result is read again: it must have these limits, and all else as it was.
        if self.limits(&after).as_ref() != Ok(&wanted) || self.policy(&after) != self.policy(&before) {
            let names: Vec<&str> = limits.keys().map(String::as_str).collect();
            return Err(format!("{} can't be set in {}: edit it by hand", names.join(", "), self.0.display()));
        }
        self.write(&after)?;
        let file = Configuration::parse(&self.0, &after).map_err(|failure| failure.message)?;
        let places = file.set_at(|at| place(&self.0, &after, at));
        Ok(places.into_iter().filter(|(name, _)| limits.contains_key(name)).collect())
    }
}

/// Sets a limit: in its line, at the end of the table of limits, or in a table at the end of the file.
fn with_limit(text: &str, name: &str, value: u64, comment: &str) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let new = format!("{name} = {value}  # {comment}");
    let is_table = |line: &String| line.split('#').next().unwrap_or_default().trim() == LIMITS;
    let Some(table) = lines.iter().position(is_table) else {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.extend([LIMITS.to_owned(), new]);
        return lines.join("\n") + "\n";
    };
    let begin = table + 1;
    let next = lines[begin..].iter().position(|line| line.trim_start().starts_with('['));
    let end = next.map_or(lines.len(), |next| begin + next);
    let is_this = |line: &String| line.split_once('=').is_some_and(|(key, _)| key.trim() == name);
    if let Some(line) = lines[begin..end].iter_mut().find(|line| is_this(line)) {
        // A comment of the file's own is kept.
        let own = line.find('#').map(|at| line[at..].to_owned()).filter(|own| !own.starts_with(SET_BY));
        *line = own.map_or(new, |own| format!("{name} = {value}  {own}"));
    } else {
        // Comments in front of the next table are about that.
        let is_set = |line: &String| !matches!(line.trim_start().chars().next(), None | Some('#'));
        let last = lines[table..end].iter().rposition(is_set).unwrap_or_default();
        lines.insert(table + last + 1, new);
    }
    lines.join("\n") + "\n"
}

/// Inserts a rule above the first one, and above the comment of that.
fn with(text: &str, block: &str) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let Some(mut first) = lines.iter().position(|line| line.trim_end() == RULE) else {
        let gap = if text.is_empty() || text.ends_with("\n\n") {
            ""
        } else if text.ends_with('\n') {
            "\n"
        } else {
            "\n\n"
        };
        return format!("{text}{gap}{block}");
    };
    while first > 0 && lines[first - 1].starts_with('#') {
        first -= 1;
    }
    format!("{}{block}\n{}", lines[..first].concat(), lines[first..].concat())
}

/// Returns where the comment of a written rule begins, and where the rule ends; `None` without both.
fn comment(text: &str, rule: &str) -> Option<(usize, usize)> {
    let at = text.match_indices(rule).map(|(at, _)| at).find(|at| text[..*at].ends_with('\n'))?;
    let above = text[..at].strip_suffix('\n')?;
    let begin = above.rfind('\n').map_or(0, |end| end + 1);
    above[begin..].starts_with("# Allowed by ").then_some((begin, at + rule.len()))
}

fn without(text: &str, rule: &str) -> Option<String> {
    let (begin, end) = comment(text, rule)?;
    let rest = text[end..].strip_prefix('\n').unwrap_or(&text[end..]);
    Some(format!("{}{rest}", &text[..begin]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE_TEXT: &str = "[[approval]]\ntool = 'Bash(cargo test)'\nagents = ['coder']\ndecision = \"allow\"\n";
    const COMMENT: &str = "Allowed by operator on 2026-01-31 09:00 UTC, after apr-1.";

    fn file(text: Option<&str>) -> (tempfile::TempDir, ConfigFile) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lastword.toml");
        if let Some(text) = text {
            fs::write(&path, text).unwrap();
        }
        (dir, ConfigFile::at(&path).unwrap())
    }

    #[test]
    fn a_rule_goes_above_the_others_and_comes_out_again_and_nothing_else_changes() {
        let own = "# ours\n[limits]\ndepth_max = 4 # short\n\n# Hold the rest.\n[[approval]]\ntool = \"Bash\"\n\n[tier.high]\n";
        for (before, first) in
            [(Some(own), "[limits]"), (Some("[limits]\ndepth_max = 4"), "[limits]"), (None, "# Allowed")]
        {
            let (_dir, file) = file(before);
            file.add_rule(RULE_TEXT, COMMENT).unwrap();
            let text = file.read().unwrap();
            assert!(text.contains(&format!("# {COMMENT}\n{RULE_TEXT}")) && text.contains(first), "{text}");
            assert_eq!(file.policy(&text).unwrap().rules[0].call.to_string(), "Bash(cargo test)");
            let rules = [RULE_TEXT.to_owned(), "[[approval]]\ntool = \"Bash\"\n".to_owned()];
            assert_eq!(file.rule_comments(&rules), [Some(COMMENT.to_owned()), None]);
            file.remove_rule(RULE_TEXT).unwrap();
            assert_eq!(file.read().unwrap().trim_end(), before.unwrap_or_default().trim_end());
            assert!(file.remove_rule(RULE_TEXT).unwrap_err().contains("no such rule"));
        }
    }

    #[test]
    fn a_file_that_would_not_mean_the_same_is_left_alone() {
        let text = "note = 1\n";
        let (_dir, file) = file(Some(text));
        file.add_rule(RULE_TEXT, COMMENT).unwrap_err();
        assert_eq!(file.read().unwrap(), text);
        // The first line that looks like a rule's is inside a text.
        let text = "[[schedule]]\nname = \"x\"\ncron = \"0 2 * * *\"\nto = \"coder\"\nbody = '''\n[[approval]]\n'''\n";
        fs::write(&file.0, text).unwrap();
        assert!(file.add_rule(RULE_TEXT, COMMENT).unwrap_err().contains("by hand"));
        assert_eq!(file.read().unwrap(), text);
    }

    #[test]
    fn a_limit_is_set_in_its_line_or_in_the_table_and_nothing_else_changes() {
        let by = |day: u32| format!("Set by operator on 2026-01-{day} 09:00 UTC");
        let set = |file: &ConfigFile, name: &str, value, day| {
            file.set_limits(&[(name.to_owned(), value)].into(), &by(day)).map(|mut places| places.remove(name))
        };
        let own = "observe = []\n[limits]\ndepth_max = 4 # short\n\n# Hold the rest.\n[[approval]]\ntool = \"Bash\"\n";
        let (_dir, file) = file(Some(own));
        assert!(set(&file, "depth_max", 6, 30).unwrap().unwrap().ends_with("lastword.toml:3"));
        assert!(set(&file, "hops_max", 4, 30).unwrap().unwrap().ends_with("lastword.toml:4"));
        assert!(set(&file, "hops_max", 2, 31).unwrap().unwrap().ends_with("lastword.toml:4"));
        let hops = format!("hops_max = 2  # {}\n", by(31));
        let wanted = own.replace("depth_max = 4 #", "depth_max = 6  #").replace("short\n", &format!("short\n{hops}"));
        assert_eq!(file.read().unwrap(), wanted);

        for (before, after) in [
            ("", format!("[limits]\n{hops}")),
            ("data = \"x\"\n", format!("data = \"x\"\n\n[limits]\n{hops}")),
            ("[limits]  # ours\n[tier.high]\n", format!("[limits]  # ours\n{hops}[tier.high]\n")),
        ] {
            fs::write(&file.0, before).unwrap();
            set(&file, "hops_max", 2, 31).unwrap();
            assert_eq!(file.read().unwrap(), after);
        }
        for before in ["limits.hops_max = 3\n", "limits = { hops_max = 3 }\n", "note = 1\n", "[limits]\nhops = 1\n"] {
            fs::write(&file.0, before).unwrap();
            set(&file, "hops_max", 2, 31).unwrap_err();
            assert_eq!(file.read().unwrap(), before);
        }
    }
}
