//! Names of channels, in texts for readers who see no links of the platform.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::ids::ChannelId;
use super::inbound::Act;
use super::platform::Platform;
use super::runs::Run;
use super::text::title;

/// Most channels that one text names; more stay ids.
const PER_TEXT_MAX: usize = 10;
/// Most names kept.
const KEPT_MAX: usize = 1_000;
/// Longest name.
const NAME_CHARS_MAX: usize = 100;

/// The names found so far; `None` for a channel that the broker's bot can't see.
#[derive(Debug, Default)]
pub(crate) struct ChannelNames(Mutex<BTreeMap<ChannelId, Option<String>>>);

impl ChannelNames {
    fn kept(&self) -> MutexGuard<'_, BTreeMap<ChannelId, Option<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces links to channels by their names in what the acts about a run pass on.
    pub(crate) async fn name_in(&self, platform: &dyn Platform, run: &Run, acts: &mut [Act]) {
        for channel in linked(run) {
            let Some(name) = self.name(platform, channel).await else { continue };
            let (link, name) = ((platform.dialect().channel)(channel), format!("#{}", title(&name, NAME_CHARS_MAX)));
            for act in acts.iter_mut() {
                match act {
                    Act::Say { body: text, .. }
                    | Act::Post { body: text, .. }
                    | Act::Finish { answer: text, .. }
                    | Act::Early { answer: text, .. } => *text = text.replace(&link, &name),
                    // A message with a header is passed on as it was written.
                    Act::Submit { .. } | Act::Hint { .. } | Act::Late => {}
                }
            }
        }
    }

    async fn name(&self, platform: &dyn Platform, channel: ChannelId) -> Option<String> {
        if let Some(known) = self.kept().get(&channel) {
            return known.clone();
        }
        let name = match platform.channel(channel).await {
            Ok(found) => found.name,
            // Asked again for the next text.
            Err(error) if error.may_pass => return None,
            Err(_) => None,
        };
        let mut kept = self.kept();
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(channel, name.clone());
        name
    }
}

/// Returns the channels that a run links to, each once.
fn linked(run: &Run) -> Vec<ChannelId> {
    let mut found = Vec::new();
    for channel in run.links() {
        if !found.contains(&channel) {
            found.push(channel);
        }
    }
    found.truncate(PER_TEXT_MAX);
    found
}

#[cfg(test)]
mod tests {
    use super::super::ids::UserId;
    use super::super::post::tests::post;
    use super::*;

    #[test]
    fn the_channels_that_a_text_links_to_are_found_once() {
        let found = |ids: &[u64]| {
            let mut said = post(1, ChannelId::new(1), UserId::new(2), false, "see");
            said.links = ids.iter().copied().map(ChannelId::new).collect();
            linked(&Run::of(said))
        };
        assert_eq!(found(&[12, 3, 12]), [12, 3].map(ChannelId::new));
        assert_eq!(found(&(0..100).collect::<Vec<_>>()).len(), PER_TEXT_MAX);
    }
}
