//! Names of channels, in texts for readers who see no links of Discord.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::inbound::Act;
use super::rest::Rest;
use super::text::title;

/// Most channels that one text names; more stay ids.
const PER_TEXT_MAX: usize = 10;
/// Most names kept.
const KEPT_MAX: usize = 1_000;
/// Longest name, as Discord has it.
const NAME_CHARS_MAX: usize = 100;

/// The names found so far; `None` for a channel that the broker's bot can't see.
#[derive(Debug, Default)]
pub(crate) struct ChannelNames(Mutex<BTreeMap<u64, Option<String>>>);

impl ChannelNames {
    fn kept(&self) -> MutexGuard<'_, BTreeMap<u64, Option<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces links to channels by their names in what acts pass on.
    pub(crate) async fn name_in(&self, rest: &Rest, acts: &mut [Act]) {
        for act in acts {
            match act {
                Act::Say { body: text, .. }
                | Act::Post { body: text, .. }
                | Act::Finish { answer: text, .. }
                | Act::Early { answer: text, .. } => *text = self.named(rest, text).await,
                // A message with a header is passed on as it was written.
                Act::Submit { .. } | Act::Hint { .. } | Act::Late => {}
            }
        }
    }

    async fn named(&self, rest: &Rest, text: &str) -> String {
        let mut named = text.to_owned();
        for channel in linked(text) {
            let known = self.kept().get(&channel).cloned();
            let name = match known {
                Some(known) => known,
                None => {
                    let name = match rest.channel(channel).await {
                        Ok(found) => found.name,
                        // Asked again for the next text.
                        Err(error) if error.may_pass() => continue,
                        Err(_) => None,
                    };
                    let mut kept = self.kept();
                    if kept.len() >= KEPT_MAX {
                        kept.clear();
                    }
                    kept.insert(channel, name.clone());
                    name
                }
            };
            if let Some(name) = name {
                named = named.replace(&format!("<#{channel}>"), &format!("#{}", title(&name, NAME_CHARS_MAX)));
            }
        }
        named
    }
}

/// Returns the channels that a text links to, each once.
fn linked(text: &str) -> Vec<u64> {
    let mut found = Vec::new();
    for part in text.split("<#").skip(1) {
        let id = part.split_once('>').and_then(|(id, _)| id.parse().ok());
        found.extend(id.filter(|id| !found.contains(id)));
    }
    found.truncate(PER_TEXT_MAX);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_channels_that_a_text_links_to_are_found_once() {
        assert_eq!(linked("see <#12>, <#3> and <#12>; not <#x>, <# 4> or <#5"), [12, 3]);
        let many: String = (0..100).map(|id| format!("<#{id}>")).collect();
        assert_eq!(linked(&many).len(), PER_TEXT_MAX);
    }
}
