//! Room posts: a post is read as it was written, and its mentions are names that its text has after an `@`.

use lastword_facts::names::AgentName;
use lastword_wire::Post;

use super::{MENTIONS_MAX, mentions};

/// Checks a post: its JSON, or the text itself.
///
/// # Panics
/// Panics if the property is broken.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match serde_json::from_str::<Post>(text) {
        Ok(post) => {
            let written = serde_json::to_string(&post).expect("a post is written");
            let again: Post = serde_json::from_str(&written).expect("and read again");
            assert_eq!((&again.body, &again.mentions, &again.reference), (&post.body, &post.mentions, &post.reference));
            found_in(&post.body);
        }
        Err(_) => found_in(text),
    }
}

fn found_in(body: &str) {
    let found = mentions(body);
    assert!(found.len() <= MENTIONS_MAX);
    let lower = body.to_ascii_lowercase();
    let mut places = Vec::new();
    for name in &found {
        let place = lower.find(&format!("@{name}"));
        assert!(place.is_some(), "{name} isn't in {body:?}");
        assert_eq!(found.iter().filter(|other| *other == name).count(), 1, "each name once");
        places.push(place);
    }
    if found.len() < MENTIONS_MAX {
        let kilo = AgentName::new("kilo").expect("a name");
        assert!(mentions(&format!("{body} @Kilo.")).contains(&kilo), "what is before a mention doesn't hide it");
        assert_eq!(mentions(&format!("{body} a@kilo")), found, "an address is no mention");
    }
}
