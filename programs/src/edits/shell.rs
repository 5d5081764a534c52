//! The files that a line of a shell's language writes, as far as it says so: redirections, and the commands that are made
//! to change files. What a program writes by itself isn't seen.

use std::path::{Path, PathBuf};

use tree_sitter::{Node, Parser};

/// The longest script that is read, in bytes.
const SCRIPT_BYTES_MAX: usize = 64 << 10;
/// Shells within shells that are read.
const NESTED_MAX: usize = 4;
/// Shells, whose option that ends in `c` is followed by a script.
const SHELLS: [&str; 6] = ["ash", "bash", "dash", "ksh", "sh", "zsh"];
/// Commands that run the command behind their options.
const WRAPPERS: [&str; 7] = ["sudo", "env", "time", "nice", "nohup", "command", "exec"];

/// What a script writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Writes {
    /// The files and directories.
    pub(super) files: Vec<PathBuf>,
    /// It changes whatever files of the work tree in this directory git decides on.
    pub(super) tree: Option<PathBuf>,
}

/// Returns what a script writes when it is run in `cwd`.
pub(super) fn writes(script: &str, cwd: &Path) -> Writes {
    let mut found = ShellReader { cwd: Some(cwd.to_owned()), nested: 0, writes: Writes::default() };
    found.script(script);
    found.writes.files.sort();
    found.writes.files.dedup();
    found.writes
}

struct ShellReader {
    /// The directory in which the next command runs; `None` once that isn't known.
    cwd: Option<PathBuf>,
    /// How many shells within shells this one is.
    nested: usize,
    writes: Writes,
}

/// What is read next.
enum PendingNode<'a> {
    Node(Node<'a>),
    /// A shell of its own was left, and this is the directory again.
    Left(Option<PathBuf>),
}

impl ShellReader {
    fn script(&mut self, script: &str) {
        let mut parser = Parser::new();
        if script.len() <= SCRIPT_BYTES_MAX
            && parser.set_language(&tree_sitter_bash::LANGUAGE.into()).is_ok()
            && let Some(tree) = parser.parse(script, None)
        {
            self.read(tree.root_node(), script);
        }
    }

    /// Reads the script that a shell of its own runs.
    fn nested(&mut self, script: &str) {
        if self.nested < NESTED_MAX {
            let cwd = self.cwd.clone();
            self.nested += 1;
            self.script(script);
            self.nested -= 1;
            self.cwd = cwd;
        }
    }

    /// Reads a script from its start, without recursion in its length.
    fn read(&mut self, root: Node<'_>, script: &str) {
        let mut next = vec![PendingNode::Node(root)];
        while let Some(at) = next.pop() {
            let node = match at {
                PendingNode::Node(node) => node,
                PendingNode::Left(cwd) => {
                    self.cwd = cwd;
                    continue;
                }
            };
            match node.kind() {
                "file_redirect" => self.redirect(node, script),
                "command" => self.command(&words(node, script)),
                "subshell" | "command_substitution" | "process_substitution" => {
                    next.push(PendingNode::Left(self.cwd.clone()))
                }
                _ => {}
            }
            let mut walk = node.walk();
            let children: Vec<Node<'_>> = node.children(&mut walk).collect();
            next.extend(children.into_iter().rev().map(PendingNode::Node));
        }
    }

    fn redirect(&mut self, node: Node<'_>, script: &str) {
        let mut walk = node.walk();
        let writes = node.children(&mut walk).any(|part| !part.is_named() && part.kind().contains('>'));
        let target = node.child_by_field_name("destination").and_then(|word| literal(word, script));
        if let Some(target) = target.filter(|target| writes && !is_descriptor(target)) {
            self.file(&target);
        }
    }

    fn file(&mut self, path: &str) {
        if let Some(cwd) = self.cwd.as_ref().filter(|_| !path.is_empty() && !path.starts_with("/dev/")) {
            self.writes.files.push(cwd.join(path));
        }
    }

    fn files<'a>(&mut self, paths: impl IntoIterator<Item = &'a String>) {
        paths.into_iter().for_each(|path| self.file(path));
    }

    /// Reads a command by its words.
    fn command(&mut self, words: &[Option<String>]) {
        let mut words = words;
        while let [Some(first), rest @ ..] = words
            && (WRAPPERS.contains(&first.as_str()) || first.contains('='))
        {
            let options =
                rest.iter().take_while(|word| word.as_deref().is_some_and(|word| word.starts_with('-'))).count();
            words = &rest[options..];
        }
        let [Some(name), args @ ..] = words else { return };
        let known: Vec<String> = args.iter().flatten().cloned().collect();
        let name = name.rsplit('/').next().unwrap_or(name);
        let mut plain: Vec<&String> = known.iter().filter(|word| !word.starts_with('-')).collect();
        match name {
            "cd" => {
                let to = args.first().and_then(Option::as_ref);
                self.cwd = self.cwd.take().zip(to).map(|(cwd, to)| cwd.join(to));
            }
            "tee" | "touch" | "rm" | "rmdir" | "mv" | "unlink" | "shred" => self.files(plain),
            "cp" | "install" | "ln" => self.files(plain.pop()),
            "truncate" => {
                let size = known.iter().position(|word| word == "-s").and_then(|at| known.get(at + 1));
                self.files(plain.into_iter().filter(|word| Some(*word) != size));
            }
            "dd" => {
                let out = known.iter().find_map(|word| word.strip_prefix("of="));
                out.into_iter().for_each(|path| self.file(path));
            }
            "sed" | "perl" => {
                let in_place = |word: &String| {
                    word.starts_with("--in-place")
                        || (word.starts_with('-') && !word.starts_with("--") && word.contains('i'))
                };
                if known.iter().any(in_place) {
                    // The script stands behind an option, or first.
                    let given = known.iter().position(|word| {
                        word.starts_with('-') && !word.starts_with("--") && word.ends_with(['e', 'f'])
                    });
                    let script = given.map_or_else(|| plain.first().copied(), |at| known.get(at + 1)).cloned();
                    self.files(plain.into_iter().filter(|word| Some(*word) != script.as_ref()));
                }
            }
            "git" => self.git(&known),
            shell if SHELLS.contains(&shell) => {
                let runs = |word: &String| word.starts_with('-') && !word.starts_with("--") && word.ends_with('c');
                let script = known.iter().position(runs).and_then(|at| known.get(at + 1));
                script.into_iter().for_each(|script| self.nested(script));
            }
            _ => {}
        }
    }

    fn git(&mut self, args: &[String]) {
        let (mut at, mut cwd) = (0, self.cwd.clone());
        while let Some(option) = args.get(at).filter(|word| word.starts_with('-')) {
            if matches!(option.as_str(), "-C" | "-c" | "--git-dir" | "--work-tree") {
                if option == "-C" {
                    cwd = cwd.zip(args.get(at + 1)).map(|(cwd, dir)| cwd.join(dir));
                }
                at += 1;
            }
            at += 1;
        }
        let Some((verb, rest)) = args.get(at..).and_then(<[String]>::split_first) else { return };
        let before = std::mem::replace(&mut self.cwd, cwd);
        let behind = rest.iter().position(|word| word == "--").map(|at| &rest[at + 1..]);
        let plain: Vec<&String> = rest.iter().filter(|word| !word.starts_with('-')).collect();
        let says = |words: &[&str]| rest.iter().any(|word| words.contains(&word.as_str()));
        let whole = match verb.as_str() {
            "mv" | "rm" => {
                self.files(plain);
                false
            }
            "restore" => {
                self.files(behind.map_or(plain, |paths| paths.iter().collect()));
                false
            }
            "checkout" | "reset" if behind.is_some() => {
                self.files(behind.unwrap_or_default());
                false
            }
            "checkout" | "switch" | "merge" | "rebase" | "pull" | "cherry-pick" | "revert" | "am" | "apply"
            | "clean" => true,
            "reset" => says(&["--hard", "--merge", "--keep"]),
            "stash" => !says(&["list", "show", "drop", "clear", "create", "store"]),
            _ => false,
        };
        if whole {
            self.writes.tree.clone_from(&self.cwd);
        }
        self.cwd = before;
    }
}

/// Returns the words of a command; one that only the shell that runs it knows is `None`.
fn words(command: Node<'_>, script: &str) -> Vec<Option<String>> {
    let mut walk = command.walk();
    let is_word =
        |part: &Node<'_>| part.is_named() && part.kind() != "file_redirect" && part.kind() != "variable_assignment";
    command.children(&mut walk).filter(is_word).map(|word| literal(word, script)).collect()
}

/// Returns whether a redirection's target is an open descriptor, as in `2>&1`.
fn is_descriptor(target: &str) -> bool {
    !target.is_empty() && target.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
}

/// Returns the text of a word; `None` if only the shell that runs it knows it.
fn literal(word: Node<'_>, script: &str) -> Option<String> {
    let text = script.get(word.byte_range())?;
    match word.kind() {
        "command_name" => literal(word.child(0)?, script),
        "raw_string" => text.strip_prefix('\'')?.strip_suffix('\'').map(str::to_owned),
        "string" => {
            let inside = text.strip_prefix('"')?.strip_suffix('"')?;
            (!inside.contains(['$', '`'])).then(|| inside.replace("\\\"", "\"").replace("\\\\", "\\"))
        }
        "word" | "number" => {
            let is_pattern = text.contains(['*', '?', '~', '$', '`', '{']) || text.contains('[');
            let mut plain = String::with_capacity(text.len());
            let mut letters = text.chars();
            while let Some(letter) = letters.next() {
                plain.extend(if letter == '\\' { letters.next() } else { Some(letter) });
            }
            (!is_pattern).then_some(plain)
        }
        "concatenation" => {
            let mut walk = word.walk();
            word.children(&mut walk).map(|part| literal(part, script)).collect()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(script: &str) -> Vec<String> {
        let found = writes(script, Path::new("/w")).files;
        found.iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn what_a_script_writes_is_seen_where_it_says_so() {
        for (script, written) in [
            ("cat a > b.txt 2>&1", vec!["/w/b.txt"]),
            ("echo x >> 'a b.txt'; ls 2>/dev/null", vec!["/w/a b.txt"]),
            ("cat > src/x.rs <<'EOF'\necho > no\nEOF", vec!["/w/src/x.rs"]),
            ("sed -i 's/a/b/' src/a.rs src/b.rs", vec!["/w/src/a.rs", "/w/src/b.rs"]),
            ("sed -i.bak -e s/a/b/ a", vec!["/w/a"]),
            ("sed -n p a", vec![]),
            ("perl -pi -e 's/a/b/' a", vec!["/w/a"]),
            ("cd src && rm -rf \"old dir\" && echo > x", vec!["/w/src/old dir", "/w/src/x"]),
            ("cd $DIR && echo > x", vec![]),
            ("mv a b && cp c d", vec!["/w/a", "/w/b", "/w/d"]),
            ("sudo env X=1 tee -a log", vec!["/w/log"]),
            ("make | tee out.log | grep x", vec!["/w/out.log"]),
            ("git mv a b; git checkout -- src/x; git restore y", vec!["/w/a", "/w/b", "/w/src/x", "/w/y"]),
            ("git -C sub rm x", vec!["/w/sub/x"]),
            ("(cd x; touch y); truncate -s 0 z", vec!["/w/x/y", "/w/z"]),
            ("/bin/bash -lc 'cd x && touch made' && touch y", vec!["/w/x/made", "/w/y"]),
            ("sudo sh -c \"sh -c 'rm a'\"; bash build.sh -c x", vec!["/w/a"]),
            ("sh -c \"rm $FILE\"", vec![]),
            ("if true; then echo > a; fi; f() { echo > b; }", vec!["/w/a", "/w/b"]),
        ] {
            assert_eq!(files(script), written, "{script}");
        }
    }

    #[test]
    fn a_command_that_changes_what_git_decides_on_is_of_the_whole_tree() {
        let tree = |script: &str| writes(script, Path::new("/w")).tree;
        for whole in ["git stash", "git checkout main", "git reset --hard", "cd /w && git pull", "git apply x.patch"] {
            assert_eq!(tree(whole), Some(PathBuf::from("/w")), "{whole}");
        }
        assert_eq!(tree("git -C /x stash pop"), Some(PathBuf::from("/x")));
        for part in ["git stash list", "git reset a", "git checkout -- a", "git commit -m stash", "git status"] {
            assert_eq!(tree(part), None, "{part}");
        }
    }
}
