//! Subjects: the first line of the request that a work item began with.

use std::collections::BTreeMap;

use lastword_facts::fact::{Answer, Part};
use lastword_facts::ids::ConvId;
use lastword_facts::{Fact, Seq, Time};

use super::Context;
use super::read_model::{ask, fresh};
use crate::error::ApiError;

/// The most characters of a subject.
const CHARS_MAX: usize = 120;

/// The most bytes of a text that a page quotes.
const TEXT_BYTES_MAX: usize = 8 << 10;

/// Returns the first line of a text that isn't blank, shortened.
pub fn first_line(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let cut: String = line.chars().take(CHARS_MAX).collect();
    if cut.len() < line.len() { format!("{cut}…") } else { cut }
}

/// Returns the begin of a text, as a page quotes it.
fn begin(text: &str) -> String {
    let cut = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
    if cut.len() < text.len() { format!("{cut}…") } else { cut.to_owned() }
}

/// Returns the texts of the messages at these positions, long ones cut; what is no message is left out.
pub async fn texts(ctx: &Context, mut seqs: Vec<Seq>) -> Result<BTreeMap<Seq, String>, ApiError> {
    seqs.sort_unstable();
    seqs.dedup();
    let mut texts = BTreeMap::new();
    let text = |seq, entry: &std::sync::Arc<lastword_facts::Entry>| {
        if let Fact::Accepted { message } = &entry.fact {
            texts.insert(seq, begin(&message.body));
        }
    };
    ctx.handle.visit(seqs, text).await?;
    Ok(texts)
}

/// How a request ended.
pub struct Ending {
    /// The time of its answer.
    pub at: Time,
    /// The reason that its agent gave, a long one cut.
    pub reason: Option<String>,
}

/// Returns how requests ended, by the positions of their answers.
pub async fn endings(ctx: &Context, mut seqs: Vec<Seq>) -> Result<BTreeMap<Seq, Ending>, ApiError> {
    seqs.sort_unstable();
    seqs.dedup();
    let mut endings = BTreeMap::new();
    let ending = |seq, entry: &std::sync::Arc<lastword_facts::Entry>| {
        if let Fact::Accepted { message } = &entry.fact
            && let Part::Answer(Answer { reason, .. }) = &message.part
        {
            endings.insert(seq, Ending { at: entry.at, reason: reason.as_deref().map(begin) });
        }
    };
    ctx.handle.visit(seqs, ending).await?;
    Ok(endings)
}

/// Returns the subjects of these conversations. One whose first message is gone from the log has none.
pub async fn of(ctx: &Context, convs: Vec<ConvId>) -> Result<BTreeMap<ConvId, String>, ApiError> {
    let look = |convs: Vec<ConvId>| ask(ctx, move |index| index.first_messages(&convs));
    let mut first = look(convs.clone()).await?;
    if first.len() < convs.len() {
        // A conversation that began a moment ago isn't indexed yet, and no event reloads a list once it is.
        fresh(ctx).await;
        first = look(convs).await?;
    }
    let texts = texts(ctx, first.iter().map(|(_, seq)| *seq).collect()).await?;
    let subject = |(conv, seq): (ConvId, Seq)| Some((conv, first_line(texts.get(&seq)?)));
    Ok(first.into_iter().filter_map(subject).filter(|(_, subject)| !subject.is_empty()).collect())
}
