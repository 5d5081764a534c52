//! The words of others in a prompt: within the boundary are exactly the author's words, and none of them is outside.

use lastword_facts::{AnswerStatus, MessageType, visible};
use lastword_wire::{Notice, NoticeKind, StoredMessage, quote};
use serde_json::Value;

use super::texts;

/// Characters that a reader may take for the end of a line.
const LINE_ENDS: [char; 7] = ['\n', '\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}'];

/// Checks texts of one author in every place that it can fill. The first four bytes are the seed of the boundary.
pub fn check(data: &[u8]) {
    let Some((seed, rest)) = data.split_first_chunk::<4>() else { return };
    let seed = u32::from_le_bytes(*seed);
    let mut parts = texts(rest);
    let mut next = || parts.next().unwrap_or_default();
    let (body, reason, extra) = (next(), next(), next());
    let (from, reference, request) = (next(), next(), next());
    let mut message = StoredMessage::blank(MessageType::Response);
    (message.from, message.to, message.reference) = (from.clone(), from.clone(), reference);
    (message.body, message.reason, message.action) = (body.clone(), Some(reason.clone()), Some(from.clone()));
    message.request_id = (!request.is_empty()).then_some(request);
    message.payload = Some(Value::from(extra.clone()));
    (message.completed, message.failed) = (vec![extra.clone()], vec![reason.clone(), extra.clone()]);
    message.status = Some(AnswerStatus::Failed);

    let json = |texts: &[&String]| serde_json::to_string(texts).expect("texts are JSON");
    let (completed, failed) = (json(&[&extra]), json(&[&reason, &extra]));
    let payload = Value::from(extra.clone()).to_string();
    let mut expected = vec![
        ("", body.as_str()),
        ("reason", &reason),
        ("completed parts", &completed),
        ("failed parts", &failed),
        ("payload", &payload),
    ];
    let worded = quote::message(&message, seed);
    let header = within(&worded, &expected);
    assert!(header.starts_with("[FROM:") && header.matches(['[', ']']).count() <= 12, "{header:?}");
    let most = seed as usize % 64;
    let mut left = most;
    for part in &mut expected {
        let cut = part.1.floor_char_boundary(left);
        // What is cut off as a whole has no label; an empty text has one.
        let shown = part.0.is_empty() || part.1.is_empty() || cut > 0;
        *part = if shown { (part.0, &part.1[..cut]) } else { ("cut", "") };
        left -= cut;
    }
    expected.retain(|part| part.0 != "cut");
    within(&quote::excerpt(&message, most, seed), &expected);

    notice(&body, &extra, &from, seed);
    denial(&body, seed);
    let line = quote::quoted(&body);
    assert!(!line.contains(LINE_ENDS) && !line.chars().any(visible::steers), "{line:?}");
    assert_eq!(serde_json::from_str::<String>(&line).ok().as_ref(), Some(&body), "it is quoted in full");
    let word = quote::word(&body);
    assert!(word == line || (word == body && !body.contains(|c: char| c.is_whitespace() || "[]\"".contains(c))));
}

fn notice(body: &str, extra: &str, from: &str, seed: u32) {
    let notice = Notice {
        id: "msg-1".into(),
        kind: NoticeKind::Info,
        from: from.to_owned(),
        from_human: seed.is_multiple_of(2),
        reference: Some(from.to_owned()),
        request_id: None,
        body: body.to_owned(),
        payload: Some(Value::from(extra)),
        eta_ms: None,
        created_at: String::new(),
    };
    let payload = Value::from(extra).to_string();
    let worded = quote::notice(&notice, seed);
    let header = within(&worded, &[("", body), ("payload", &payload)]);
    assert!(header.starts_with("Notice (info) from "), "{header:?}");
}

fn denial(comment: &str, seed: u32) {
    let worded = quote::denial("Not allowed.", "the agent boss", Some(comment), seed);
    if comment.trim().is_empty() {
        return assert_eq!(worded, "Not allowed.");
    }
    let header = within(&worded, &[("", comment)]);
    assert_eq!(header, "Not allowed. The comment of the agent boss:");
}

/// Reads a block as a model does: one line, then the boundary, then labels and texts up to the boundary. Returns that
/// line, which no author can have ended.
fn within<'a>(worded: &'a str, expected: &[(&str, &str)]) -> &'a str {
    let (header, rest) = worded.split_once('\n').expect("a header line");
    assert!(!header.contains(LINE_ENDS) && !header.chars().any(visible::steers), "{header:?}");
    let (mark, _) = rest.split_once('\n').expect("a boundary");
    let digits = mark.trim_matches('-');
    assert!(mark.len() == 18 && digits.len() == 8 && digits.bytes().all(|b| b.is_ascii_hexdigit()), "{mark:?}");
    for (_, text) in expected {
        assert!(!text.contains(digits), "the boundary occurs in a text that it encloses: {worded:?}");
    }
    // Built a second time from the texts alone: no byte is added, lost or moved.
    let mut inside = format!("{mark}\n");
    for (label, text) in expected {
        if !label.is_empty() {
            inside.push_str(&format!("{mark} {label}\n"));
        }
        inside.push_str(text);
        if !text.is_empty() {
            inside.push('\n');
        }
    }
    inside.push_str(mark);
    assert_eq!(rest, inside);
    assert_eq!(worded.matches(mark).count(), 2 + expected.iter().filter(|(label, _)| !label.is_empty()).count());
    header
}
