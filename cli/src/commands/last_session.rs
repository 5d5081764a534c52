//! The session of its program that an agent had last in a folder: the program itself knows only the folder's last one, which
//! may be another agent's.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use lastword_programs::{AgentProgram, Keep};

use super::launch::is_taken;
use crate::failure::Failure;

/// The folder in the data directory with a folder for each program, in which each agent has a file.
const FOLDER: &str = "last-sessions";
const SUFFIX: &str = ".json";

/// The place at which an agent's last session in a folder is kept.
#[derive(Clone, Debug)]
pub(super) struct LastSession {
    /// A JSON object: the id of the last session in each folder.
    pub(super) file: PathBuf,
    pub(super) folder: String,
}

impl LastSession {
    /// Returns the place for an agent of a program in the current folder.
    pub(super) fn of(data: &Path, program: &AgentProgram, agent: &str) -> Result<Self, Failure> {
        let file =
            std::path::absolute(data)?.join(FOLDER).join(program.command.names[0]).join(format!("{agent}{SUFFIX}"));
        Ok(Self { file, folder: std::env::current_dir()?.to_string_lossy().into_owned() })
    }

    fn read(file: &Path) -> BTreeMap<String, String> {
        fs::read(file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
    }

    /// Keeps the id of the session in which something is said.
    pub(super) fn keep(&self, id: &str) -> std::io::Result<()> {
        let mut known = Self::read(&self.file);
        if known.get(&self.folder).is_some_and(|last| last == id) {
            return Ok(());
        }
        known.insert(self.folder.clone(), id.to_owned());
        if let Some(folder) = self.file.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let draft = self.file.with_extension("new");
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(serde_json::to_string(&known)?.as_bytes())?;
        fs::rename(draft, &self.file)
    }

    /// Returns what keeps the id. Without it `--continue` takes the session before.
    pub(super) fn keeper(&self) -> Keep {
        let last = self.clone();
        Box::new(move |id| drop(last.keep(id)))
    }

    /// Returns the arguments with the agent's own last session in place of the folder's, and the id of the session that
    /// they resume. A session that is open as another agent is refused: its messages reach one agent only.
    pub(super) fn resumed(
        &self,
        data: &Path,
        args: &[String],
        program: &AgentProgram,
    ) -> Result<(Vec<String>, Option<String>), Failure> {
        let end = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
        let (own, rest) = args.split_at(end);
        let mut own = own.to_vec();
        let last = program
            .resume
            .last
            .iter()
            .find_map(|words| Some((own.windows(words.len()).position(|at| at == *words)?, words)));
        let agent = self.file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if let Some((at, words)) = last {
            let known = Self::read(&self.file);
            let Some(id) = known.get(&self.folder) else {
                return Err(Failure::refused(format!(
                    "{agent} has no session of {} in {} to continue",
                    program.name, self.folder
                ))
                .hint("start one without --continue, or name one by its id, as the program itself does"));
            };
            let option = if words.len() > 1 { words[0] } else { program.resume.id[0] };
            own.splice(at..at + words.len(), [option.to_owned(), id.clone()]);
        }
        let after = |word: &&str| {
            let at = own.iter().position(|arg| arg == word)?;
            own.get(at + 1).filter(|id| !id.starts_with('-')).cloned()
        };
        let joined =
            |word: &&str| own.iter().find_map(|arg| arg.strip_prefix(word)?.strip_prefix('=').map(str::to_owned));
        let id = program.resume.id.iter().find_map(|word| after(word).or_else(|| joined(word)));
        if let Some(id) = &id
            && let Some(other) = self.others(id).find(|other| *other != agent && is_taken(data, other))
        {
            return Err(Failure::refused(format!("session {id} is open as {other}"))
                .hint(format!("end the session of {other} first, or start a new one")));
        }
        Ok((own.into_iter().chain(rest.iter().cloned()).collect(), id))
    }

    /// Returns the agents of the program whose last session in some folder is this one.
    fn others(&self, id: &str) -> impl Iterator<Item = String> {
        let files = self.file.parent().and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
        files.filter_map(move |entry| {
            let name = entry.file_name().into_string().ok()?.strip_suffix(SUFFIX)?.to_owned();
            Self::read(&entry.path()).values().any(|last| last == id).then_some(name)
        })
    }
}

#[cfg(test)]
mod tests {
    use lastword_programs::claude::CLAUDE;
    use lastword_programs::codex::CODEX;
    use lastword_programs::gemini::GEMINI;
    use lastword_programs::opencode::OPENCODE;

    use super::*;

    #[test]
    fn what_resumes_the_folders_last_session_resumes_the_agents_own() {
        let dir = tempfile::tempdir().unwrap();
        let place = LastSession { file: dir.path().join("planner.json"), folder: "/work".to_owned() };
        place.keep("s-0").unwrap();
        LastSession { folder: "/other".to_owned(), ..place.clone() }.keep("s-9").unwrap();
        place.keep("s-1").unwrap();
        for (program, args, resumed, id) in [
            (&CLAUDE, "--model x --continue", "--model x --resume s-1", Some("s-1")),
            (&CLAUDE, "-c hello", "--resume s-1 hello", Some("s-1")),
            (&CLAUDE, "--resume s-7", "--resume s-7", Some("s-7")),
            (&CLAUDE, "--resume=s-7", "--resume=s-7", Some("s-7")),
            (&CLAUDE, "--resume --model x", "--resume --model x", None),
            (&CLAUDE, "-- --continue", "-- --continue", None),
            (&OPENCODE, "-c --fork", "--session s-1 --fork", Some("s-1")),
            (&OPENCODE, "-s s-7", "-s s-7", Some("s-7")),
            (&CODEX, "--continue", "resume s-1", Some("s-1")),
            (&CODEX, "resume --last go on", "resume s-1 go on", Some("s-1")),
            (&CODEX, "fork --last", "fork s-1", Some("s-1")),
            (&CODEX, "-c a=b resume s-7", "-c a=b resume s-7", Some("s-7")),
            (&GEMINI, "--resume latest", "--resume s-1", Some("s-1")),
            (&GEMINI, "--resume=latest", "--resume s-1", Some("s-1")),
            (&GEMINI, "-r 3", "-r 3", Some("3")),
        ] {
            let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
            let found = place.resumed(dir.path(), &words(args), program).unwrap();
            assert_eq!(found, (words(resumed), id.map(str::to_owned)), "{args}");
        }
        let elsewhere = LastSession { folder: "/new".to_owned(), ..place };
        let refused = elsewhere.resumed(dir.path(), &["-c".to_owned()], &CLAUDE).unwrap_err();
        assert_eq!(refused.message, "planner has no session of Claude Code in /new to continue");
    }
}
