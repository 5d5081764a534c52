//! The transcript of a session: one JSON value a line, as Claude Code writes it.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::Path;
use std::time::Duration;

use lastword_client::wire::Usage;
use lastword_client::wire::text::mended;
use serde_json::Value;

use super::{HookError, Occasion};
use crate::output::Reader;
use crate::program::{ALL, Transcript};
use crate::usage::Prices;

/// The end of a transcript in which its last line is looked for.
const TAIL_BYTES: u64 = 64 << 10;

/// Longest wait for the last message of a turn, and the pause between two looks.
const WRITTEN_MAX: Duration = Duration::from_secs(1);
const WRITTEN_CHECK: Duration = Duration::from_millis(20);

/// Returns the length of the session's transcript; 0 if there is none yet.
pub(super) fn length(occasion: &Occasion) -> u64 {
    let known = occasion.transcript_path.as_ref().and_then(|path| fs::metadata(path).ok());
    known.map_or(0, |known| known.len())
}

/// Returns the forms of transcripts. No line of one has a meaning in another.
fn transcripts() -> impl Iterator<Item = &'static Transcript> {
    ALL.into_iter().filter_map(|program| program.transcript.as_ref())
}

/// Returns what the model requests in a transcript used, from a position on.
pub(super) fn used(path: &Path, from: u64) -> Option<Usage> {
    let mut readers: Vec<Reader> = transcripts().map(|transcript| Reader::of((transcript.form)())).collect();
    for line in opened(path, from).ok()?.split(b'\n').map_while(Result::ok) {
        readers.iter_mut().for_each(|reader| reader.line(&line));
    }
    let used = readers.iter().find_map(|reader| reader.usage(&Prices::default()));
    used.filter(|usage| usage.check().is_ok())
}

/// Waits until the transcript has the model's last message, which its program may write after it has called the hook: the
/// usage of the last request stands there, too.
pub(super) async fn written(occasion: &Occasion, from: u64) {
    let Some(said) = occasion.last_assistant_message.as_deref() else { return };
    let transcript = Occasion { last_assistant_message: None, ..occasion.clone() };
    // For a transcript that can't be read there is nothing to wait for.
    let is_written = || last_words(&transcript, from).map_or(true, |last| last.trim() == said.trim());
    for _ in 0..WRITTEN_MAX.as_millis() / WRITTEN_CHECK.as_millis() {
        if occasion.transcript_path.is_none() || said.is_empty() || is_written() {
            return;
        }
        tokio::time::sleep(WRITTEN_CHECK).await;
    }
}

/// Whether the user broke the model's turn off since a position, of which no hook tells.
pub(super) fn is_interrupted(path: &Path, began: u64) -> bool {
    let from = fs::metadata(path).map_or(0, |known| known.len().saturating_sub(TAIL_BYTES)).max(began);
    let Ok(end) = opened(path, from) else { return false };
    // The program notes its mode, its cost and more behind what was said; Gemini CLI repeats the prompt that it goes back to.
    let said = |line: &[u8]| {
        let value: Value = serde_json::from_str(&String::from_utf8_lossy(line)).ok()?;
        transcripts().find_map(|transcript| (transcript.breaks_off)(&value))
    };
    end.split(b'\n').map_while(Result::ok).filter_map(|line| said(&line)).last().unwrap_or(false)
}

/// Returns the model's last message: from the input, or else from the session's transcript, from a position on.
pub(super) fn last_words(occasion: &Occasion, from: u64) -> Result<String, HookError> {
    if let Some(text) = &occasion.last_assistant_message {
        return Ok(text.clone());
    }
    let Some(path) = &occasion.transcript_path else { return Ok(String::new()) };
    let failed = |source| HookError::File { path: path.clone(), source };
    let mut last = String::new();
    for line in opened(path, from).map_err(failed)?.split(b'\n') {
        let line = line.map_err(failed)?;
        // The last line may still be in the middle of being written; a line that doesn't parse is skipped.
        let Ok(value) = serde_json::from_str::<Value>(&mended(&line)) else { continue };
        if value["type"] == "assistant"
            && let Some(text) = texts(&value["message"]["content"])
        {
            last = text;
        }
    }
    Ok(last)
}

fn texts(content: &Value) -> Option<String> {
    let parts = content.as_array()?.iter().filter(|part| part["type"] == "text");
    let texts: Vec<&str> = parts.filter_map(|part| part["text"].as_str()).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

fn opened(path: &Path, from: u64) -> std::io::Result<BufReader<File>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    Ok(BufReader::new(file))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_turn_that_its_user_broke_off_is_known_by_what_its_program_wrote() {
        let file = std::env::temp_dir().join(format!("lastword-cancelled-{}", std::process::id()));
        let calls = json!({"type": "gemini", "toolCalls": [{"name": "run_shell_command", "status": "cancelled"}]});
        let info = |content: &str| json!({"type": "info", "content": content});
        let prompt = json!({"type": "user", "content": [{"text": "[Request interrupted by user]"}]});
        let set = json!({"$set": {"messages": []}});
        let interrupted = |lines: &[&Value]| {
            let lines = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
            fs::write(&file, format!("before\n{lines}")).unwrap();
            is_interrupted(&file, 7)
        };
        let cancelled = info("Request cancelled.");
        assert!(interrupted(&[&calls, &cancelled, &prompt, &set]));
        assert!(
            !interrupted(&[&calls, &info("This request failed."), &prompt]),
            "what Gemini CLI tells its user otherwise"
        );
        assert!(!interrupted(&[&cancelled, &prompt, &calls]), "it goes on");
        let said = json!({"type": "user", "message": {"content": "[Request interrupted by user for tool use]"}});
        assert!(interrupted(&[&said, &json!({"type": "mode"})]));
        fs::remove_file(&file).unwrap();
    }

    #[test]
    fn what_was_said_last_is_found_in_a_transcript_too() {
        let dir = std::env::temp_dir().join(format!("lastword-hook-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("transcript.jsonl");
        let said = |text: &str| json!({"type": "assistant", "message": {"content": [{"type": "text", "text": text}]}});
        let tool = json!({"type": "assistant", "message": {"content": [{"type": "tool_use", "name": "Bash"}]}});
        let user = json!({"type": "user", "message": {"content": "thanks"}});
        fs::write(&path, format!("{}\n{tool}\n{}\n{user}\n{{\"type\": \"assis", said("first"), said("second")))
            .unwrap();
        let mut occasion = Occasion { transcript_path: Some(path), ..Occasion::default() };
        assert_eq!(last_words(&occasion, 0).unwrap(), "second");
        occasion.last_assistant_message = Some("third".into());
        assert_eq!(last_words(&occasion, 0).unwrap(), "third");
        fs::remove_dir_all(&dir).unwrap();
    }
}
