//! A log of the first edition, with a record that it should not have written.

use std::fs;
use std::path::{Path, PathBuf};

use lastword_server::{Config, Server, repair};
use lastword_store::Store;

/// The first edition forgot WEEKLY during the request that reused it, a little more than a week later.
fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/first-edition")
}

fn copy() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in ["lastword.db", "lastword.head"] {
        fs::copy(data().join(name), dir.path().join(name)).unwrap();
    }
    dir
}

#[tokio::test]
async fn a_log_with_a_forgotten_conversation_in_use_is_repaired_and_not_silently() {
    let dir = copy();
    let Err(error) = Server::start(Config::local(dir.path())).await else { panic!("it starts as if nothing were") };
    assert!(error.to_string().contains("lastword doctor --repair"), "{error}");
    let found = repair(Store::sqlite(dir.path()).open().unwrap().as_mut()).unwrap();
    assert_eq!(found.entries, 63);
    let continued: Vec<(String, &str)> = found.continued.iter().map(|(seq, r)| (seq.to_string(), r.as_str())).collect();
    assert_eq!(continued, [("msg-62".to_owned(), "WEEKLY")]);
    assert_eq!(found.recorded.map(|seq| seq.0), Some(64));
    let again = repair(Store::sqlite(dir.path()).open().unwrap().as_mut()).unwrap();
    assert_eq!((again.recorded, again.continued.len()), (None, 0), "once is enough");
    let server = Server::start(Config::local(dir.path())).await.unwrap();
    let look = |live: &lastword_server::Live<'_>| {
        let conv = live.state.conv_of("WEEKLY").unwrap();
        (live.state.edition, live.state.conversations[&conv].messages, live.state.conversations[&conv].open_tasks.len())
    };
    let (edition, messages, open) = server.handle().query(look).await.unwrap();
    assert_eq!((edition, messages, open), (2, 3, 1), "the second report is open in the conversation of the first");
    server.shutdown().await;
}
