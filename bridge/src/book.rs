//! The bridge's own file: what it has done, so that nothing is lost or done twice across restarts.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lastword_client::ClientError;
use rusqlite::{Connection, OptionalExtension as _, Params, Row, params};

use super::ids::{ChannelId, PostId, UserId};
use super::inbound::{Act, Thread};

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
-- The last post of a channel or thread that was dealt with.
CREATE TABLE IF NOT EXISTS handled (channel INTEGER PRIMARY KEY, post INTEGER NOT NULL) STRICT;
-- The id from which on what is posted in a channel's threads is for the bridge, and up to when threads that were put away
-- have been looked through.
CREATE TABLE IF NOT EXISTS began (channel INTEGER PRIMARY KEY, post INTEGER NOT NULL, put_away TEXT NOT NULL) STRICT;
-- What a post was found to mean, before it was done: a second try does the same.
CREATE TABLE IF NOT EXISTS decided (post INTEGER PRIMARY KEY, acts TEXT NOT NULL) STRICT;
-- Where the log ended before it was done.
CREATE TABLE IF NOT EXISTS heads (post INTEGER PRIMARY KEY, seq INTEGER NOT NULL) STRICT;
-- Posts that were too old to ask for anything, of which the humans there are not notified yet.
CREATE TABLE IF NOT EXISTS late (post INTEGER PRIMARY KEY, channel INTEGER NOT NULL) STRICT;
-- Posts of humans that a pause or stop refused, to be passed on after a resume.
CREATE TABLE IF NOT EXISTS kept (
  post INTEGER PRIMARY KEY, channel INTEGER NOT NULL, act TEXT NOT NULL, tries INTEGER NOT NULL
) STRICT;
-- The threads, and whether one is inside of a channel of ours.
CREATE TABLE IF NOT EXISTS channels (id INTEGER PRIMARY KEY, parent INTEGER) STRICT;
CREATE TABLE IF NOT EXISTS threads (
  ref TEXT PRIMARY KEY,
  channel INTEGER NOT NULL,
  -- The post from which the thread is started.
  origin INTEGER NOT NULL,
  thread INTEGER,
  agent TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS threads_by_thread ON threads (thread);
-- Conversations that are shown in the thread of the one from which they came, under REFs that don't tell.
CREATE TABLE IF NOT EXISTS kin (ref TEXT PRIMARY KEY, root TEXT NOT NULL) STRICT, WITHOUT ROWID;
-- What was posted, or may have been: then it has no id yet.
CREATE TABLE IF NOT EXISTS posts (
  nonce TEXT PRIMARY KEY,
  channel INTEGER NOT NULL,
  floor INTEGER NOT NULL,
  id INTEGER,
  content TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS posts_by_id ON posts (id);
CREATE TABLE IF NOT EXISTS hints (about TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
-- The humans of the workspace that were made for people of the platform.
CREATE TABLE IF NOT EXISTS people (user INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT;
-- Posts with the sign of a queued request, and the agent whose bot set it.
CREATE TABLE IF NOT EXISTS queued (post INTEGER PRIMARY KEY, agent TEXT NOT NULL) STRICT;
-- When each agent was last at work.
CREATE TABLE IF NOT EXISTS seen (agent TEXT PRIMARY KEY, at_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID;
-- The users of the bots that the bridge posts with, for when one can't be asked.
CREATE TABLE IF NOT EXISTS bots (agent TEXT PRIMARY KEY, user INTEGER NOT NULL) STRICT, WITHOUT ROWID;
-- Requests that a human's own post put before a foreign bot, and where.
CREATE TABLE IF NOT EXISTS asked (request TEXT PRIMARY KEY, channel INTEGER NOT NULL) STRICT, WITHOUT ROWID;
-- What a foreign bot answered to a request before its turn.
CREATE TABLE IF NOT EXISTS early (request TEXT PRIMARY KEY, answer TEXT NOT NULL) STRICT, WITHOUT ROWID;
-- Turns that were shown to a foreign bot, where, and behind which id it answers.
CREATE TABLE IF NOT EXISTS given (agent TEXT NOT NULL, thread INTEGER NOT NULL, turn TEXT NOT NULL, floor INTEGER NOT NULL,
  PRIMARY KEY (agent, thread)) STRICT, WITHOUT ROWID;";

/// Posts after which those that are too many are dropped.
const SENT_BETWEEN: u32 = 256;
/// Posts whose text is kept, to recognize an echo that arrives without its nonce.
const POSTS_KEPT: u32 = 20_000;

/// The bridge's SQLite file; clones share one connection.
#[derive(Clone, Debug)]
pub(crate) struct BridgeStore {
    db: Arc<Mutex<Connection>>,
    /// The prefix of this file's nonces.
    mark: String,
    /// The number of posts sent since it was opened.
    sent: Arc<AtomicU32>,
}

/// Where the bridge begins in a channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Begun {
    /// Earlier posts aren't for the bridge.
    pub(crate) post: PostId,
    /// The time up to which archived threads have been looked through.
    pub(crate) archived: String,
}

/// The posts of a channel that were too old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Missed {
    pub(crate) channel: ChannelId,
    pub(crate) posts: u32,
    pub(crate) last: PostId,
}

/// Where a conversation is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ThreadPlace {
    pub(crate) reference: String,
    pub(crate) channel: ChannelId,
    pub(crate) origin: PostId,
    pub(crate) thread: Option<ChannelId>,
}

/// A post that may have been sent: `id` is `None` until its response arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tried {
    pub(crate) floor: PostId,
    pub(crate) id: Option<PostId>,
}

pub(super) type Kept<T> = rusqlite::Result<T>;

impl BridgeStore {
    pub(crate) fn open(path: &Path) -> Kept<Self> {
        use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
        // The file holds messages of agents, so only its owner may read it. If it can't be created, opening it reports
        // why.
        if let Some(folder) = path.parent() {
            let _made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).is_ok();
        }
        let _made = std::fs::File::options().append(true).create(true).mode(0o600).open(path).is_ok();
        Self::over(Connection::open(path)?)
    }

    #[cfg(test)]
    pub(crate) fn in_memory() -> Kept<Self> {
        Self::over(Connection::open_in_memory()?)
    }

    fn over(db: Connection) -> Kept<Self> {
        db.pragma_update(None, "journal_mode", "WAL")?;
        // FULL, because a post must not go out before it is noted: it would be posted again after a power loss.
        db.pragma_update(None, "synchronous", "FULL")?;
        db.execute_batch(SCHEMA)?;
        let mark = {
            use std::hash::{BuildHasher as _, Hasher as _};
            // Each file has its own prefix: a platform may treat two posts with the same nonce as one.
            let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
            let fresh = format!("lw{:05x}", random & 0xf_ffff);
            db.execute("INSERT OR IGNORE INTO meta VALUES ('mark', ?1)", [fresh])?;
            db.query_row("SELECT value FROM meta WHERE name = 'mark'", [], |row| row.get(0))?
        };
        Ok(Self { db: Arc::new(Mutex::new(db)), mark, sent: Arc::default() })
    }

    pub(super) fn db(&self) -> MutexGuard<'_, Connection> {
        self.db.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a statement.
    pub(crate) fn change(&self, sql: &str, values: impl Params) -> Kept<()> {
        self.db().prepare_cached(sql)?.execute(values).map(|_| ())
    }

    /// Returns the first row that a query finds.
    pub(crate) fn first<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> Kept<T>,
    ) -> Kept<Option<T>> {
        self.db().prepare_cached(sql)?.query_row(values, read).optional()
    }

    /// Returns whether a query finds a row.
    fn holds(&self, sql: &str, values: impl Params) -> Kept<bool> {
        self.db().prepare_cached(sql)?.exists(values)
    }

    /// Returns all rows that a query finds.
    pub(crate) fn all<T>(&self, sql: &str, values: impl Params, read: impl FnMut(&Row<'_>) -> Kept<T>) -> Kept<Vec<T>> {
        self.db().prepare_cached(sql)?.query_map(values, read)?.collect()
    }

    /// Returns the nonce of one part of a post; `seq` is the log position or another name of the post.
    pub(crate) fn nonce(&self, seq: &str, part: usize) -> String {
        format!("{}-{seq}.{part}", self.mark)
    }

    /// Returns whether a nonce was made with this file.
    pub(crate) fn is_own(&self, nonce: &str) -> bool {
        nonce.strip_prefix(&self.mark).is_some_and(|rest| rest.starts_with('-'))
    }

    /// Returns the log position up to which events have been shown.
    pub(crate) fn cursor(&self) -> Kept<Option<u64>> {
        let text: Option<String> = self.first("SELECT value FROM meta WHERE name = 'cursor'", [], |row| row.get(0))?;
        Ok(text.and_then(|text| text.parse().ok()))
    }

    pub(crate) fn set_cursor(&self, seq: u64) -> Kept<()> {
        self.change("INSERT OR REPLACE INTO meta VALUES ('cursor', ?1)", [seq.to_string()])
    }

    /// Returns the last handled post of a channel.
    pub(crate) fn handled(&self, channel: ChannelId) -> Kept<Option<PostId>> {
        self.first("SELECT post FROM handled WHERE channel = ?1", [channel], |row| row.get(0))
    }

    /// Returns the channels and threads with handled posts, the most recent first.
    pub(crate) fn followed(&self) -> Kept<Vec<ChannelId>> {
        self.all("SELECT channel FROM handled ORDER BY post DESC", [], |row| row.get(0))
    }

    /// Returns where the bridge began in a channel.
    pub(crate) fn began(&self, channel: ChannelId) -> Kept<Option<Begun>> {
        self.first("SELECT post, put_away FROM began WHERE channel = ?1", [channel], |row| {
            Ok(Begun { post: row.get(0)?, archived: row.get(1)? })
        })
    }

    /// Notes where the bridge begins in a channel; the first note wins.
    pub(crate) fn begin_in(&self, channel: ChannelId, post: PostId, put_away: &str) -> Kept<()> {
        self.change("INSERT OR IGNORE INTO began VALUES (?1, ?2, ?3)", params![channel, post, put_away])
    }

    /// Notes that a channel's archived threads have been looked through up to this time.
    pub(crate) fn looked_through(&self, channel: ChannelId, put_away: &str) -> Kept<()> {
        self.change("UPDATE began SET put_away = max(put_away, ?2) WHERE channel = ?1", params![channel, put_away])
    }

    /// Notes that the posts of a channel are handled up to `post`, and drops the decision on the run that began with
    /// `first`.
    pub(crate) fn handle(&self, channel: ChannelId, first: PostId, post: PostId) -> Kept<()> {
        let mut db = self.db();
        let change = db.transaction()?;
        change.execute(
            "INSERT INTO handled VALUES (?1, ?2) ON CONFLICT DO UPDATE SET post = max(post, ?2)",
            params![channel, post],
        )?;
        // Only this run's entries: ids increase across all channels, so a range would drop other channels' decisions.
        change.execute("DELETE FROM decided WHERE post = ?1", [first])?;
        change.execute("DELETE FROM heads WHERE post = ?1", [first])?;
        change.commit()
    }

    /// Returns what remains of an earlier try's decision on a post, and the log's head before that try (0 if not
    /// needed).
    pub(crate) fn decided(&self, post: PostId) -> Kept<Option<(Vec<Act>, u64)>> {
        let found = self.first(
            "SELECT acts, coalesce((SELECT seq FROM heads WHERE post = ?1), 0) FROM decided WHERE post = ?1",
            [post],
            |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?.cast_unsigned())),
        )?;
        Ok(found.and_then(|(text, head)| Some((serde_json::from_str(&text).ok()?, head))))
    }

    pub(crate) fn decide(&self, post: PostId, acts: &VecDeque<Act>, head: u64) -> Kept<()> {
        let text = serde_json::to_string(acts).unwrap_or_default();
        let mut db = self.db();
        let change = db.transaction()?;
        change.prepare_cached("INSERT OR REPLACE INTO decided VALUES (?1, ?2)")?.execute(params![post, text])?;
        change
            .prepare_cached("INSERT OR REPLACE INTO heads VALUES (?1, ?2)")?
            .execute(params![post, head.cast_signed()])?;
        change.commit()
    }

    /// Notes a post that was too old to ask for anything.
    pub(crate) fn miss(&self, post: PostId, channel: ChannelId) -> Kept<()> {
        self.change("INSERT OR IGNORE INTO late VALUES (?1, ?2)", params![post, channel])
    }

    /// Returns the channels whose humans must be notified of posts that were too old.
    pub(crate) fn missed(&self) -> Kept<Vec<Missed>> {
        self.all("SELECT channel, count(*), max(post) FROM late GROUP BY channel", [], |row| {
            Ok(Missed { channel: row.get(0)?, posts: row.get(1)?, last: row.get(2)? })
        })
    }

    /// Notes that humans were notified of such posts up to this one.
    pub(crate) fn notified(&self, channel: ChannelId, last: PostId) -> Kept<()> {
        self.change("DELETE FROM late WHERE channel = ?1 AND post <= ?2", params![channel, last])
    }

    /// Returns a thread's channel if it is known; `Some(None)` for an id that isn't a thread.
    pub(crate) fn parent(&self, channel: ChannelId) -> Kept<Option<Option<ChannelId>>> {
        self.first("SELECT parent FROM channels WHERE id = ?1", [channel], |row| row.get(0))
    }

    pub(crate) fn set_parent(&self, channel: ChannelId, parent: Option<ChannelId>) -> Kept<()> {
        self.change("INSERT OR REPLACE INTO channels VALUES (?1, ?2)", params![channel, parent])
    }

    /// Notes where a conversation is shown; the first note wins.
    pub(crate) fn place(&self, place: &ThreadPlace) -> Kept<()> {
        self.change(
            "INSERT OR IGNORE INTO threads VALUES (?1, ?2, ?3, ?4, NULL)",
            params![place.reference, place.channel, place.origin, place.thread],
        )
    }

    /// Notes that a conversation is shown in the place of another one.
    pub(crate) fn join(&self, reference: &str, root: &str) -> Kept<()> {
        self.change("INSERT OR IGNORE INTO kin VALUES (?1, ?2)", [reference, root])
    }

    /// Removes the place of a conversation that wasn't opened after all.
    pub(crate) fn unplace(&self, reference: &str, origin: PostId) -> Kept<()> {
        self.change("DELETE FROM threads WHERE ref = ?1 AND origin = ?2", params![reference, origin])
    }

    /// Notes that a human's own post showed a request to a foreign bot.
    pub(crate) fn ask(&self, request: &str, channel: ChannelId) -> Kept<()> {
        self.change("INSERT OR REPLACE INTO asked VALUES (?1, ?2)", params![request, channel])
    }

    pub(crate) fn asked_in(&self, request: &str) -> Kept<Option<ChannelId>> {
        self.first("SELECT channel FROM asked WHERE request = ?1", [request], |row| row.get(0))
    }

    /// Returns where a conversation is shown: in its own place, or in that of the conversation it came from.
    pub(crate) fn placed(&self, reference: &str) -> Kept<Option<ThreadPlace>> {
        let place = |row: &Row<'_>| {
            Ok(ThreadPlace { reference: row.get(0)?, channel: row.get(1)?, origin: row.get(2)?, thread: row.get(3)? })
        };
        self.first(
            "SELECT ref, channel, origin, thread FROM threads
             WHERE ref = ?1 OR ref = (SELECT root FROM kin WHERE ref = ?1) ORDER BY ref = ?1 DESC LIMIT 1",
            [reference],
            place,
        )
    }

    pub(crate) fn set_thread(&self, reference: &str, thread: ChannelId) -> Kept<()> {
        self.change("UPDATE threads SET thread = ?2 WHERE ref = ?1", params![reference, thread])
    }

    /// Notes the agent that a human asked last in a conversation.
    pub(crate) fn involve(&self, reference: &str, agent: &str) -> Kept<()> {
        self.change("UPDATE threads SET agent = ?2 WHERE ref = ?1", [reference, agent])
    }

    /// Returns the conversation that a thread shows; the first one if it shows several.
    pub(crate) fn thread(&self, thread: ChannelId) -> Kept<Option<Thread>> {
        let found = |row: &Row<'_>| Ok(Thread { reference: row.get(0)?, agent: row.get(1)? });
        self.first(
            "SELECT ref, agent FROM threads WHERE thread = ?1 ORDER BY origin, length(ref) LIMIT 1",
            [thread],
            found,
        )
    }

    /// Returns the earlier try of a post.
    pub(crate) fn tried(&self, nonce: &str) -> Kept<Option<Tried>> {
        self.first("SELECT floor, id FROM posts WHERE nonce = ?1", [nonce], |row| {
            Ok(Tried { floor: row.get(0)?, id: row.get(1)? })
        })
    }

    /// Notes that a post is about to be tried. If it gets posted, it comes after everything known in the channel now
    /// (`floor`).
    pub(crate) fn begin(&self, nonce: &str, channel: ChannelId, content: &str) -> Kept<()> {
        let db = self.db();
        let floor: PostId = db.query_row(
            "SELECT max(coalesce((SELECT max(id) FROM posts WHERE channel = ?1), 0),
                        coalesce((SELECT post FROM handled WHERE channel = ?1), 0))",
            [channel],
            |row| row.get(0),
        )?;
        db.prepare_cached("INSERT OR IGNORE INTO posts VALUES (?1, ?2, ?3, NULL, ?4)")?
            .execute(params![nonce, channel, floor, content])
            .map(|_| ())
    }

    /// Notes the id of a sent post. Now and then, drops the oldest posts beyond `POSTS_KEPT`.
    pub(crate) fn sent(&self, nonce: &str, id: PostId) -> Kept<()> {
        let db = self.db();
        db.prepare_cached("UPDATE posts SET id = ?2 WHERE nonce = ?1")?.execute(params![nonce, id])?;
        if self.sent.fetch_add(1, Ordering::Relaxed).is_multiple_of(SENT_BETWEEN) {
            let old = "DELETE FROM posts WHERE id < (SELECT id FROM posts WHERE id NOT NULL ORDER BY id DESC
                       LIMIT 1 OFFSET ?1)";
            db.execute(old, [POSTS_KEPT])?;
        }
        Ok(())
    }

    /// Returns whether the bridge made a post: by its id, or by its text if the id isn't known yet.
    pub(crate) fn is_echo(&self, channel: ChannelId, post: PostId, content: &str) -> Kept<bool> {
        self.holds(
            "SELECT 1 FROM posts WHERE id = ?2
             UNION ALL SELECT 1 FROM posts WHERE channel = ?1 AND id IS NULL AND floor < ?2 AND content = ?3",
            params![channel, post, content],
        )
    }

    /// Returns whether a post already belongs to a nonce.
    pub(crate) fn is_known(&self, post: PostId) -> Kept<bool> {
        self.holds("SELECT 1 FROM posts WHERE id = ?1", [post])
    }

    /// Returns whether a hint was already given.
    pub(crate) fn hinted(&self, about: &str) -> Kept<bool> {
        self.holds("SELECT 1 FROM hints WHERE about = ?1", [about])
    }

    pub(crate) fn hint(&self, about: &str) -> Kept<()> {
        self.change("INSERT OR IGNORE INTO hints VALUES (?1)", [about])
    }

    /// Forgets a hint, so that it can be given again; returns whether it was given.
    pub(crate) fn unhint(&self, about: &str) -> Kept<bool> {
        self.db().prepare_cached("DELETE FROM hints WHERE about = ?1")?.execute([about]).map(|gone| gone > 0)
    }

    /// Returns the user of an agent's bot, as of the last time that it was signed in.
    pub(crate) fn bot_user(&self, agent: &str) -> Kept<Option<UserId>> {
        self.first("SELECT user FROM bots WHERE agent = ?1", [agent], |row| row.get(0))
    }

    pub(crate) fn set_bot_user(&self, agent: &str, user: UserId) -> Kept<()> {
        self.change("INSERT OR REPLACE INTO bots VALUES (?1, ?2)", params![agent, user])
    }

    /// Notes that a turn was shown to a foreign bot in a thread; its posts up to `floor` don't answer the turn.
    pub(crate) fn show_turn(&self, agent: &str, place: ChannelId, turn: &str, floor: PostId) -> Kept<()> {
        // Turns are numbered in the order in which they open, so reading the log again doesn't bring an old one back.
        self.change(
            "INSERT INTO given VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE SET turn = ?3, floor = ?4
             WHERE CAST(ltrim(turn, 'turn-') AS INTEGER) < CAST(ltrim(?3, 'turn-') AS INTEGER)",
            params![agent, place, turn, floor],
        )
    }

    /// Lowers a turn's floor to this post: later posts may answer it.
    pub(crate) fn answers_behind(&self, turn: &str, post: PostId) -> Kept<()> {
        self.change("UPDATE given SET floor = min(floor, ?2) WHERE turn = ?1", params![turn, post])
    }

    /// Returns the turn that a foreign bot's post may answer: one shown there before the post.
    pub(crate) fn turn(&self, agent: &str, place: ChannelId, post: PostId) -> Kept<Option<String>> {
        self.first(
            "SELECT turn FROM given WHERE agent = ?1 AND thread = ?2 AND floor < ?3",
            params![agent, place, post],
            |row| row.get(0),
        )
    }

    pub(crate) fn end_turn(&self, turn: &str) -> Kept<()> {
        self.change("DELETE FROM given WHERE turn = ?1", [turn])
    }
}

/// Maps an error of the bridge's file to an unreachable broker: without the file the bridge can neither show nor read
/// anything.
#[expect(clippy::needless_pass_by_value, reason = "the signature that `map_err` takes")]
pub(crate) fn lost(error: rusqlite::Error) -> ClientError {
    ClientError::Unreachable { url: "the bridge's own file".to_owned(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(channel: u64) -> ChannelId {
        ChannelId::new(channel)
    }

    const fn id(post: u64) -> PostId {
        PostId::new(post)
    }

    #[test]
    fn a_post_that_may_have_been_sent_is_an_echo_by_its_words_and_later_by_its_id() {
        let book = BridgeStore::in_memory().unwrap();
        let nonce = book.nonce("12", 0);
        assert!(book.is_own(&nonce) && !book.is_own("other-12.0") && nonce.len() <= 25);
        book.handle(at(5), id(100), id(100)).unwrap();
        book.begin(&nonce, at(5), "Look.").unwrap();
        assert_eq!(book.tried(&nonce).unwrap(), Some(Tried { floor: id(100), id: None }));
        assert!(book.is_echo(at(5), id(101), "Look.").unwrap());
        assert!(!book.is_echo(at(5), id(99), "Look.").unwrap(), "it was there before");
        assert!(!book.is_echo(at(6), id(101), "Look.").unwrap(), "another channel");
        book.sent(&nonce, id(101)).unwrap();
        assert!(book.is_echo(at(5), id(101), "whatever").unwrap() && !book.is_echo(at(5), id(102), "Look.").unwrap());
        assert_eq!(book.tried(&nonce).unwrap(), Some(Tried { floor: id(100), id: Some(id(101)) }));
    }

    #[test]
    fn a_thread_shows_the_conversation_that_began_it() {
        let book = BridgeStore::in_memory().unwrap();
        let place = ThreadPlace { reference: "D-1".into(), channel: at(1), origin: id(7), thread: None };
        book.place(&place).unwrap();
        assert_eq!(book.placed("D-1").unwrap(), Some(place));
        book.set_thread("D-1", at(7)).unwrap();
        book.involve("D-1", "kilo").unwrap();
        book.place(&ThreadPlace { reference: "X-1".into(), channel: at(1), origin: id(9), thread: Some(at(7)) })
            .unwrap();
        let thread = Thread { reference: "D-1".into(), agent: Some("kilo".into()) };
        assert_eq!(book.thread(at(7)).unwrap(), Some(thread.clone()));
        assert_eq!(book.thread(at(8)).unwrap(), None);
        book.join("Y-1", "D-1").unwrap();
        assert_eq!(book.placed("Y-1").unwrap(), book.placed("D-1").unwrap());
        assert_eq!(book.thread(at(7)).unwrap(), Some(thread), "it is about the first, whatever else it shows");
    }

    #[test]
    fn an_old_turn_does_not_come_back_when_the_log_is_read_again() {
        let (book, place) = (BridgeStore::in_memory().unwrap(), at(5));
        for turn in ["turn-9", "turn-10", "turn-9"] {
            book.show_turn("hive", place, turn, id(7)).unwrap();
        }
        assert_eq!(book.turn("hive", place, id(8)).unwrap().as_deref(), Some("turn-10"));
        assert_eq!(book.turn("hive", place, id(7)).unwrap(), None, "it was posted before");
        book.end_turn("turn-9").unwrap();
        assert_eq!(book.turn("hive", place, id(8)).unwrap().as_deref(), Some("turn-10"));
        book.end_turn("turn-10").unwrap();
        assert_eq!(book.turn("hive", place, id(8)).unwrap(), None);
    }

    #[test]
    fn the_file_is_its_owners_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let path = std::env::temp_dir().join(format!("lastword-book-{}.sqlite", std::process::id()));
        let book = BridgeStore::open(&path).unwrap();
        book.set_cursor(7).unwrap();
        let modes = ["", "-wal"].map(|end| {
            let file = format!("{}{end}", path.display());
            std::fs::metadata(file).map(|file| file.permissions().mode() & 0o777)
        });
        drop(book);
        let reopened = BridgeStore::open(&path).and_then(|book| book.cursor());
        for end in ["", "-wal", "-shm"] {
            // The last two may already have been dropped.
            let _gone = std::fs::remove_file(format!("{}{end}", path.display())).is_ok();
        }
        assert!(modes.into_iter().all(|mode| mode.unwrap() == 0o600));
        assert_eq!(reopened.unwrap(), Some(7));
    }

    #[test]
    fn what_was_dealt_with_never_goes_back() {
        let book = BridgeStore::in_memory().unwrap();
        book.decide(id(9), &VecDeque::new(), 30).unwrap();
        assert_eq!(book.decided(id(9)).unwrap(), Some((Vec::new(), 30)));
        book.handle(at(2), id(12), id(12)).unwrap();
        assert_eq!(book.decided(id(9)).unwrap(), Some((Vec::new(), 30)), "another channel is ahead");
        book.handle(at(1), id(9), id(9)).unwrap();
        book.handle(at(1), id(4), id(4)).unwrap();
        assert_eq!((book.handled(at(1)).unwrap(), book.decided(id(9)).unwrap()), (Some(id(9)), None));
    }
}
