//! Properties of what is read from Discord and posted there. Each takes arbitrary bytes and panics if its property is
//! broken. Fuzz targets run them, and tests run them on the targets' corpus.

use lastword_bridge::cards::is_harmless;
use lastword_bridge::event::EventSink;
use lastword_bridge::ids::{RoleId, UserId};
use lastword_bridge::interactions::Deed;
use lastword_bridge::platform::Inlet;
use lastword_bridge::post::Post;
use lastword_bridge::properties::{BROKER, HIVE, KILO, meant, posted};
use lastword_bridge::text::{begins_like_header, title};
use serde_json::json;
use tokio::sync::{mpsc, watch};

use super::dialect::DISCORD;
use super::gateway::{Role, dispatch};
use super::model::Message;
use super::text::{MESSAGE_CHARS_MAX, PARTS_MAX, split};

/// A frame of the gateway: an event is at most one post or interaction, and what a post means keeps the rules of
/// the bridge.
///
/// # Panics
/// Panics if the property is broken.
pub fn frame(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for role in [Role::Reader, Role::Present] {
        let (posts, mut read) = mpsc::channel(2);
        let (interactions, mut clicked) = mpsc::channel(2);
        let strangers = interactions.clone();
        let (humans, roles) = ([UserId::new(7)].into(), [RoleId::new(8)].into());
        let (missed, report) = (watch::Sender::new(0), EventSink::new(|_| ()));
        let inlet = Inlet { posts, interactions, strangers, humans, roles, missed, report };
        dispatch(text, role, &inlet);
        let (post, click) = (read.try_recv().ok(), clicked.try_recv().ok());
        assert!(read.try_recv().is_err() && clicked.try_recv().is_err() && !(post.is_some() && click.is_some()));
        match role {
            Role::Present => {
                assert!(post.is_none(), "an agent's bot reads no posts");
                let shows = |deed: &Deed| matches!(deed, Deed::Click(button) if is_harmless(button));
                assert!(click.is_none_or(|click| shows(&click.deed)), "and passes on no decision");
            }
            Role::Reader => post.iter().for_each(|post| meant(post, &DISCORD)),
        }
    }
}

/// A post: the first byte picks author and kind, the rest is its text. The text is posted back as a message, too.
///
/// # Panics
/// Panics if the property is broken.
pub fn post(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    let author = [BROKER, KILO, HIVE, UserId::new(4)][usize::from(choice % 4)];
    let kind = [0, 19, 20, 6][usize::from(choice / 4 % 4)];
    let webhook = (choice / 16 % 2 == 1).then_some("9");
    let post = json!({
        "id": "175928847299117063", "channel_id": "7", "type": kind, "content": text, "webhook_id": webhook,
        "author": { "id": author.to_string(), "bot": choice / 32 % 2 == 1 },
    });
    let post: Message = serde_json::from_value(post).expect("a post");
    meant(&Post::from(post), &DISCORD);
    parts(&text, if choice / 64 % 2 == 1 { 60 } else { MESSAGE_CHARS_MAX });
    assert!(posted(&text, &DISCORD).iter().all(|part| part.encode_utf16().count() <= MESSAGE_CHARS_MAX));
    let title = title(&text, 80);
    assert!(!title.contains('\n') && title.chars().count() <= 80);
}

/// A text in messages: none is too long, code blocks stay blocks, and nothing is lost.
fn parts(text: &str, max: usize) {
    let parts = split(text, max);
    assert!((1..=PARTS_MAX).contains(&parts.len()));
    let cut = parts.len() == PARTS_MAX;
    for part in &parts {
        let notice = cut && part.starts_with("… cut here");
        assert!(notice || part.encode_utf16().count() <= max, "a part is too long: {part:?}");
    }
    assert!(parts.iter().skip(1).all(|part| !begins_like_header(part)), "a part begins like a header: {parts:?}");
    if !cut && !text.contains('`') && !text.contains('…') {
        let bare = |text: &str| text.split_whitespace().collect::<String>();
        assert_eq!(bare(&parts.concat().replace('…', "")), bare(text), "nothing is lost or added");
    }
}

#[cfg(test)]
#[path = "../../fuzz/src/campaign.rs"]
mod campaign;

#[test]
fn a_frame_of_the_gateway_means_no_more_than_its_author_may() {
    campaign::run("frame", frame);
}

#[test]
fn a_post_is_counted_once_and_shown_within_discords_limits() {
    campaign::run("post", post);
}
